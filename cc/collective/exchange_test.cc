// The exchange: in whatever order messages move, every member ends with the members' values combined in their order.
#include "cc/collective/exchange.h"

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Bytes = std::vector<char>;

// Numbers that every type has and that no operator takes out of it; where sums are rounded, their order shows.
Bytes RandomValues(ElementType type, int64_t elements, std::mt19937* random) {
  Bytes bytes(elements * SizeOf(type));
  std::uniform_real_distribution<float> real(-3, 3);
  for (int64_t i = 0; i < elements; ++i) {
    const float value = real(*random);
    char* const to = bytes.data() + i * SizeOf(type);
    const auto put = [to](auto stored) { std::memcpy(to, &stored, sizeof(stored)); };
    switch (type) {
      case ElementType::kFloat16:
        put(FloatToHalf(value));
        break;
      case ElementType::kBfloat16:
        put(FloatToBfloat16(value));
        break;
      case ElementType::kFloat32:
        put(value);
        break;
      case ElementType::kFloat64:
        put(static_cast<double>(value) / 3);
        break;
      case ElementType::kInt32:
        put(static_cast<int32_t>(value * 1000));
        break;
      case ElementType::kInt64:
        put(static_cast<int64_t>(value * 1000));
        break;
    }
  }
  return bytes;
}

// All members of one exchange, and the messages between them.
class Group {
 public:
  Group(ExchangeSpec spec, uint32_t seed) : spec_(spec), random_(seed) {
    for (int member = 0; member < spec.members; ++member) {
      inputs_.push_back(RandomValues(spec.type, spec.elements, &random_));
      outputs_.emplace_back(inputs_.back().size());
    }
    for (int member = 0; member < spec.members; ++member) {
      spec_.me = member;
      members_.push_back(std::make_unique<Exchange>(spec_, inputs_[member].data(), outputs_[member].data()));
    }
  }

  // Lets all messages arrive, one after another, drawn from those that have been sent.
  void Run() {
    std::vector<std::vector<Message>> expected;
    for (const auto& member : members_) expected.push_back(member->Incoming());
    std::vector<std::pair<int, Message>> sent;
    for (int member = 0; member < spec_.members; ++member) {
      for (const Message& message : members_[member]->Outgoing()) sent.emplace_back(member, message);
    }
    while (!sent.empty()) {
      std::swap(sent[random_() % sent.size()], sent.back());
      const auto [from, message] = sent.back();
      sent.pop_back();
      ++messages_;
      auto& awaited = expected[message.peer];
      Message arriving = message;
      arriving.peer = from;
      const auto same = [&](const Message& one) {
        return one.kind == arriving.kind && one.peer == from && one.piece == arriving.piece && one.range == arriving.range;
      };
      size_t position = 0;
      while (position < awaited.size() && !same(awaited[position])) ++position;
      ASSERT_LT(position, awaited.size()) << "nobody waits for it";
      awaited.erase(awaited.begin() + static_cast<int64_t>(position));
      EXPECT_FALSE(members_[message.peer]->done());
      for (const Message& next : Deliver(message.peer, from, message)) sent.emplace_back(message.peer, next);
    }
    for (int member = 0; member < spec_.members; ++member) {
      EXPECT_TRUE(expected[member].empty());
      EXPECT_TRUE(members_[member]->done());
    }
  }

  // What `from` has sent arrives at `to`: in its place or elsewhere, as it comes.
  std::vector<Message> Deliver(int to, int from, const Message& message) {
    const Bytes& source = message.kind == Message::Kind::kResult ? outputs_[from] : inputs_[from];
    const int64_t size = SizeOf(spec_.type), begin = message.range.begin * size, bytes = message.range.size() * size;
    auto copy = std::make_shared<Bytes>(source.begin() + begin, source.begin() + begin + bytes);
    Message arriving = message;
    arriving.peer = from;
    void* place = members_[to]->PlaceOf(arriving);
    if (place == nullptr || message.piece % 2 == 0) return members_[to]->Arrived(arriving, copy->data(), copy);
    std::memcpy(place, copy->data(), bytes);
    return members_[to]->Arrived(arriving, place, nullptr);
  }

  void ExpectCombined() const {
    std::vector<const void*> parts;
    for (const Bytes& input : inputs_) parts.push_back(input.data());
    Bytes wanted(inputs_[0].size());
    Reduce(spec_.type, spec_.reduction, parts, spec_.mean ? spec_.members : 0, spec_.elements, wanted.data());
    for (const Bytes& output : outputs_) EXPECT_EQ(output, wanted);
  }

  Exchange& member(int number) { return *members_[number]; }
  int64_t messages() const { return messages_; }

 private:
  ExchangeSpec spec_;
  std::mt19937 random_;
  std::vector<Bytes> inputs_, outputs_;
  std::vector<std::unique_ptr<Exchange>> members_;
  int64_t messages_ = 0;
};

ExchangeSpec Spec(int members, int64_t elements, int64_t piece_bytes = 1024) {
  ExchangeSpec spec;
  spec.members = members;
  spec.elements = elements;
  spec.piece_bytes = piece_bytes;
  return spec;
}

TEST(ExchangeTest, EveryTypeReductionAndSizeInRandomOrder) {
  uint32_t seed = 0;
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16, ElementType::kFloat32, ElementType::kFloat64,
                                 ElementType::kInt32, ElementType::kInt64}) {
    for (const Reduction reduction : {Reduction::kAdd, Reduction::kMax, Reduction::kMin, Reduction::kMul}) {
      for (const int64_t elements : {0, 1, 7, 33, 1000, 4099}) {
        for (const int members : {1, 2, 3, 5}) {
          ExchangeSpec spec = Spec(members, elements);
          spec.type = type;
          spec.reduction = reduction;
          spec.mean = seed % 2 == 0;
          spec.whole_bytes = seed % 3 == 0 ? 4096 : 0;
          Group group(spec, ++seed);
          group.Run();
          group.ExpectCombined();
        }
      }
    }
  }
}

TEST(ExchangeTest, NothingToExchangeIsDoneAtOnce) {
  for (const auto& [members, elements] : {std::pair<int, int64_t>{1, 100}, {3, 0}}) {
    Group group(Spec(members, elements), 1);
    for (int member = 0; member < members; ++member) {
      EXPECT_TRUE(group.member(member).done());
      EXPECT_TRUE(group.member(member).Incoming().empty());
      EXPECT_TRUE(group.member(member).Outgoing().empty());
    }
  }
}

TEST(ExchangeTest, TwoMembersAndSmallTensorsTakeOneRound) {
  ExchangeSpec spec = Spec(4, 100);
  spec.whole_bytes = 400;
  Group small(spec, 1);
  small.Run();
  small.ExpectCombined();
  EXPECT_EQ(small.messages(), 4 * 3);
  spec.whole_bytes = 399;
  Group direct(spec, 1);
  direct.Run();
  direct.ExpectCombined();
  EXPECT_EQ(direct.messages(), 2 * 4 * 3);
  Group two(Spec(2, 1000), 1);
  two.Run();
  two.ExpectCombined();
  EXPECT_EQ(two.messages(), 2 * 4);  // pieces of 1024 bytes
}

TEST(ExchangeTest, EveryMemberSendsTheLeastThatIsNeeded) {
  const int64_t elements = 3 * 16 * 100;
  Group group(Spec(3, elements, 3 * 64 * 10), 1);
  for (int member = 0; member < 3; ++member) {
    int64_t sent = 0, owned = 0;
    for (const Message& message : group.member(member).Outgoing()) sent += message.range.size();
    for (const Message& message : group.member(member).Incoming()) {
      if (message.kind == Message::Kind::kContribution) owned += message.range.size();
    }
    EXPECT_EQ(sent + owned, elements * 2 * 2 / 3);  // contributions, and the own segments to both others
  }
}

TEST(ExchangeTest, PiecesAndSegmentsAreAligned) {
  for (const int64_t elements : {1, 100, 1001, 65537}) {
    const Layout layout(3, elements, 4, 5000, 0);
    int64_t covered = 0;
    for (int64_t piece = 0; piece < layout.pieces(); ++piece) {
      for (int member = 0; member < 3; ++member) {
        const Range range = layout.SegmentOf(piece, member);
        EXPECT_EQ(range.begin, covered);
        EXPECT_TRUE(range.size() == 0 || range.begin * 4 % 64 == 0);
        EXPECT_LE(range.size() * 4, 5000);
        covered = range.end;
      }
    }
    EXPECT_EQ(covered, elements);
  }
}

// Every message of the exchange moves on a thread of its own member.
TEST(ExchangeTest, MembersOnThreads) {
  Group group(Spec(3, 20'000, 2048), 7);
  Mutex mu;
  CondVar changed;
  std::vector<std::deque<std::pair<int, Message>>> boxes(3);
  const auto send = [&](int from, const std::vector<Message>& messages) {
    const MutexLock lock(&mu);
    for (const Message& message : messages) boxes[message.peer].emplace_back(from, message);
    changed.NotifyAll();
  };
  std::vector<std::thread> threads;
  for (int member = 0; member < 3; ++member) send(member, group.member(member).Outgoing());
  for (int number = 0; number < 6; ++number) {  // two for each member
    threads.emplace_back([&, to = number % 3] {
      while (true) {
        std::pair<int, Message> next;
        {
          const MutexLock lock(&mu);
          while (boxes[to].empty() && !group.member(to).done()) changed.Wait(&mu);
          if (boxes[to].empty()) return;
          next = boxes[to].front();
          boxes[to].pop_front();
        }
        send(to, group.Deliver(to, next.first, next.second));  // wakes the others, too
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  group.ExpectCombined();
}

}  // namespace
}  // namespace tfsched
