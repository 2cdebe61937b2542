// The exchange: in whatever order messages move, every member ends with the members' values combined in their order.
#include "cc/collective/exchange.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Bytes = std::vector<char>;

constexpr ElementType kTypes[] = {ElementType::kFloat16, ElementType::kBfloat16, ElementType::kFloat32,
                                  ElementType::kFloat64, ElementType::kInt32,    ElementType::kInt64};

// Numbers that every type has and that no operator takes out of it; where sums are rounded, their order shows.
Bytes RandomValues(ElementType type, int64_t elements, bool whole_numbers, std::mt19937* random) {
  Bytes bytes(elements * SizeOf(type));
  std::uniform_real_distribution<float> real(-3, 3);
  for (int64_t i = 0; i < elements; ++i) {
    const float value = whole_numbers ? std::round(real(*random)) : real(*random);
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
        put(whole_numbers ? value : static_cast<double>(value) / 3);
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
  Group(ExchangeSpec spec, uint32_t seed, bool whole_numbers = false) : spec_(spec), random_(seed) {
    const int64_t scratch = Exchange::ScratchElements(spec) * SizeOf(spec.type);
    for (int member = 0; member < spec.members; ++member) {
      inputs_.push_back(RandomValues(spec.type, spec.elements, whole_numbers, &random_));
      outputs_.emplace_back(inputs_.back().size());
      scratches_.emplace_back(scratch);
    }
    for (int member = 0; member < spec.members; ++member) {
      spec_.me = member;
      members_.push_back(
          std::make_unique<Exchange>(spec_, inputs_[member].data(), outputs_[member].data(), scratches_[member].data()));
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
    sent_.assign(spec_.members, 0);
    while (!sent.empty()) {
      std::swap(sent[random_() % sent.size()], sent.back());
      const auto [from, message] = sent.back();
      sent.pop_back();
      ++messages_;
      sent_[from] += message.range.size();
      auto& awaited = expected[message.peer];
      const auto same = [&, sender = from, &leaving = message](const Message& one) {
        return one.kind == leaving.kind && one.peer == sender && one.piece == leaving.piece && one.number == leaving.number;
      };
      size_t position = 0;
      while (position < awaited.size() && !same(awaited[position])) ++position;
      ASSERT_LT(position, awaited.size()) << "nobody waits for it";
      const Message arriving = awaited[position];
      ASSERT_EQ(arriving.range.size(), message.range.size());
      awaited.erase(awaited.begin() + static_cast<int64_t>(position));
      EXPECT_FALSE(members_[message.peer]->done());
      const Bytes bytes = BytesOf(from, message);
      for (const Message& next : Deliver(message.peer, arriving, bytes)) sent.emplace_back(message.peer, next);
    }
    for (int member = 0; member < spec_.members; ++member) {
      EXPECT_TRUE(expected[member].empty());
      EXPECT_TRUE(members_[member]->done());
    }
  }

  // What `from` sends, as it is when it leaves.
  Bytes BytesOf(int from, const Message& message) const {
    const Bytes& source = message.memory == Memory::kInput    ? inputs_[from]
                          : message.memory == Memory::kOutput ? outputs_[from]
                                                              : scratches_[from];
    const int64_t size = SizeOf(spec_.type), begin = message.range.begin * size;
    return Bytes(source.begin() + begin, source.begin() + begin + message.range.size() * size);
  }

  // It arrives at `to`: in its place or elsewhere, as it comes.
  std::vector<Message> Deliver(int to, const Message& arriving, const Bytes& bytes) {
    void* const place = members_[to]->PlaceOf(arriving);
    if (place == nullptr || arriving.piece % 2 == 0) {
      auto copy = std::make_shared<Bytes>(bytes);
      return members_[to]->Arrived(arriving, copy->data(), copy);
    }
    std::memcpy(place, bytes.data(), bytes.size());
    return members_[to]->Arrived(arriving, place, nullptr);
  }

  // In the order of the members; around the ring in the order that begins behind the segment's owner.
  Bytes Combined() const {
    Bytes wanted(inputs_[0].size());
    const int divisor = spec_.mean ? spec_.members : 0;
    const auto combine = [&](const Range& range, int first) {
      const int64_t begin = range.begin * SizeOf(spec_.type);
      std::vector<const void*> parts;
      for (int step = 0; step < spec_.members; ++step) {
        parts.push_back(inputs_[(first + step) % spec_.members].data() + begin);
      }
      Reduce(spec_.type, spec_.reduction, parts, divisor, range.size(), wanted.data() + begin);
    };
    if (spec_.way != Way::kRing) {
      combine({0, spec_.elements}, 0);
      return wanted;
    }
    const Layout layout(spec_.members, spec_.elements, SizeOf(spec_.type), spec_.piece_bytes, spec_.piece_elements);
    for (int64_t piece = 0; piece < layout.pieces(); ++piece) {
      for (int owner = 0; owner < spec_.members; ++owner) combine(layout.SegmentOf(piece, owner), owner + 1);
    }
    return wanted;
  }

  void ExpectCombined() const {
    const Bytes wanted = Combined();
    for (const Bytes& output : outputs_) EXPECT_EQ(output, wanted);
  }

  Exchange& member(int number) { return *members_[number]; }
  const Bytes& output(int number) const { return outputs_[number]; }
  int64_t messages() const { return messages_; }
  const std::vector<int64_t>& sent() const { return sent_; }  // elements, by member

 private:
  ExchangeSpec spec_;
  std::mt19937 random_;
  std::vector<Bytes> inputs_, outputs_, scratches_;
  std::vector<std::unique_ptr<Exchange>> members_;
  int64_t messages_ = 0;
  std::vector<int64_t> sent_;
};

constexpr Way kWays[] = {Way::kDirect, Way::kEverybody, Way::kDoubling, Way::kRing};

ExchangeSpec Spec(Way way, int members, int64_t elements, int64_t piece_bytes = 1024) {
  ExchangeSpec spec;
  spec.way = way;
  spec.members = members;
  spec.elements = elements;
  spec.piece_bytes = piece_bytes;
  return spec;
}

class ExchangeTest : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ExchangeTest, testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(NameOf(way.param)); });

TEST_P(ExchangeTest, EveryTypeReductionAndSizeInRandomOrder) {
  uint32_t seed = 0;
  for (const ElementType type : kTypes) {
    for (const Reduction reduction : {Reduction::kAdd, Reduction::kMax, Reduction::kMin, Reduction::kMul}) {
      for (const int64_t elements : {0, 1, 7, 97, 1000, 4099}) {
        for (int members = 1; members <= 9; ++members) {
          ExchangeSpec spec = Spec(GetParam(), members, elements);
          spec.type = type;
          spec.reduction = reduction;
          spec.mean = seed % 2 == 0;
          Group group(spec, ++seed);
          group.Run();
          group.ExpectCombined();
        }
      }
    }
  }
}

TEST_P(ExchangeTest, PiecesOfSeveralSizesInRandomOrder) {
  uint32_t seed = 0;
  for (const ElementType type : kTypes) {
    for (int members = 1; members <= 9; ++members) {
      const int64_t aligned = 64 / SizeOf(type);
      ExchangeSpec spec = Spec(GetParam(), members, 43 * aligned + 3);
      spec.type = type;
      spec.piece_elements = {aligned, 30 * aligned, 2 * aligned, 10 * aligned + 3};
      ASSERT_TRUE(Layout::Fits(spec.elements, SizeOf(type), spec.piece_elements));
      Group group(spec, ++seed);
      group.Run();
      group.ExpectCombined();
    }
  }
}

TEST_P(ExchangeTest, ManyMembersAndSumsOfWholeNumbersAreExact) {
  for (const ElementType type : kTypes) {
    for (const int64_t piece_bytes : {512, 4096}) {
      ExchangeSpec spec = Spec(GetParam(), 16, 1009, piece_bytes);
      spec.type = type;
      Group group(spec, 1, /*whole_numbers=*/true);
      spec.way = Way::kDirect;
      Group other(spec, 1, /*whole_numbers=*/true);
      group.Run();
      other.Run();
      for (int member = 0; member < 16; ++member) EXPECT_EQ(group.output(member), other.output(0));
    }
  }
}

TEST_P(ExchangeTest, NothingToExchangeIsDoneAtOnce) {
  for (const auto& [members, elements] : {std::pair<int, int64_t>{1, 100}, {3, 0}}) {
    Group group(Spec(GetParam(), members, elements), 1);
    for (int member = 0; member < members; ++member) {
      EXPECT_TRUE(group.member(member).done());
      EXPECT_TRUE(group.member(member).Incoming().empty());
      EXPECT_TRUE(group.member(member).Outgoing().empty());
    }
  }
}

// Every message of the exchange moves on a thread of its own member.
TEST_P(ExchangeTest, MembersOnThreads) {
  constexpr int kMembers = 5;
  Group group(Spec(GetParam(), kMembers, 20'000, 4096), 7);
  Mutex mu;
  CondVar changed;
  struct Parcel {
    int from;
    Message message;
    Bytes bytes;
  };
  std::vector<std::deque<Parcel>> boxes(kMembers);
  const auto send = [&](int from, const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      Bytes bytes = group.BytesOf(from, message);
      const MutexLock lock(&mu);
      boxes[message.peer].push_back({from, message, std::move(bytes)});
    }
    const MutexLock lock(&mu);
    changed.NotifyAll();
  };
  std::vector<std::vector<Message>> incoming;
  for (int member = 0; member < kMembers; ++member) incoming.push_back(group.member(member).Incoming());
  const auto arriving = [&](int to, const Parcel& parcel) {
    for (const Message& one : incoming[to]) {
      if (one.kind == parcel.message.kind && one.peer == parcel.from && one.piece == parcel.message.piece &&
          one.number == parcel.message.number) {
        return one;
      }
    }
    ADD_FAILURE() << "nobody waits for it";
    return Message();
  };
  std::vector<std::thread> threads;
  for (int member = 0; member < kMembers; ++member) send(member, group.member(member).Outgoing());
  for (int number = 0; number < 2 * kMembers; ++number) {
    threads.emplace_back([&, to = number % kMembers] {
      while (true) {
        Parcel next;
        {
          const MutexLock lock(&mu);
          while (boxes[to].empty() && !group.member(to).done()) changed.Wait(&mu);
          if (boxes[to].empty()) return;
          next = std::move(boxes[to].front());
          boxes[to].pop_front();
        }
        send(to, group.Deliver(to, arriving(to, next), next.bytes));  // wakes the others, too
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  group.ExpectCombined();
}

// Sums may be rounded, and the choice may change from step to step: that must not change a bit.
TEST(ExchangesTest, AllWaysButTheRingHaveTheSameBitsHoweverTheyCut) {
  for (const ElementType type : kTypes) {
    ExchangeSpec spec = Spec(Way::kDirect, 5, 3001);
    spec.type = type;
    Group direct(spec, 3);
    direct.Run();
    spec.piece_bytes = 320;
    for (const Way way : {Way::kDirect, Way::kEverybody, Way::kDoubling}) {
      spec.way = way;
      Group other(spec, 3);
      other.Run();
      EXPECT_EQ(other.output(4), direct.output(0)) << NameOf(way);
    }
  }
}

TEST(ExchangesTest, MessagesAndBytesOfEachWay) {
  const int64_t elements = 4 * 16 * 100;  // 4 bytes each
  const auto run = [&](Way way, int members) {
    Group group(Spec(way, members, elements, elements * 4), 1);
    group.Run();
    group.ExpectCombined();
    for (const int64_t sent : group.sent()) EXPECT_EQ(sent, group.sent()[0]);
    return std::make_pair(group.messages() / members, group.sent()[0]);
  };
  using Load = std::pair<int64_t, int64_t>;
  EXPECT_EQ(run(Way::kDirect, 4), (Load{6, elements * 3 / 2}));  // 2 (W - 1) / W, the least
  EXPECT_EQ(run(Way::kRing, 4), (Load{6, elements * 3 / 2}));
  EXPECT_EQ(run(Way::kEverybody, 4), (Load{3, elements * 3}));
  EXPECT_EQ(run(Way::kDoubling, 4), (Load{2, elements * 3}));
  EXPECT_EQ(run(Way::kDoubling, 5), (Load{3, elements * 4}));
  EXPECT_EQ(run(Way::kEverybody, 2), (Load{1, elements}));
}

TEST(LayoutTest, PiecesAndSegmentsAreAligned) {
  for (const int64_t elements : {1, 100, 1001, 65537}) {
    const Layout layout(3, elements, 4, 5000);
    int64_t covered = 0;
    for (int64_t piece = 0; piece < layout.pieces(); ++piece) {
      EXPECT_EQ(layout.PieceOf(piece).begin, covered);
      for (int member = 0; member < 3; ++member) {
        const Range range = layout.SegmentOf(piece, member);
        EXPECT_EQ(range.begin, covered);
        EXPECT_TRUE(range.size() == 0 || range.begin * 4 % 64 == 0);
        EXPECT_LE(range.size() * 4, 5000);
        covered = range.end;
      }
      EXPECT_EQ(layout.PieceOf(piece).end, covered);
    }
    EXPECT_EQ(covered, elements);
  }
}

TEST(LayoutTest, NoPieceIsAMereRest) {
  // 4 MB and four members, pieces of 1 MB: five would hold them if each had as much as fits, the fifth with 64 bytes.
  for (const int members : {2, 3, 4, 7}) {
    for (const int64_t elements : {1'000'000, 999'999, 1'000'001, 123'456, 262'145}) {
      const int64_t piece_bytes = 1'000'000, least = 64 / 4 * members;
      const Layout layout(members, elements, 4, piece_bytes);
      const int64_t first = layout.PieceOf(0).size(), last = layout.PieceOf(layout.pieces() - 1).size();
      EXPECT_LE(first * 4, piece_bytes);
      EXPECT_LT(first - last, layout.pieces() * least);
      EXPECT_EQ(layout.pieces(), (elements + piece_bytes / 4 / least * least - 1) / (piece_bytes / 4 / least * least));
    }
  }
}

TEST(TurnTest, AllPeersGetAPieceBeforeTheNextAndResultsComeLast) {
  const Layout layout(4, 1'000'000, 4, 1'000'000);
  ASSERT_GT(layout.pieces(), 1);
  const auto algorithm = MakeDirect(layout, 2);
  std::map<int64_t, std::set<int>> peers;  // by turn
  for (const Message& message : algorithm->Outgoing()) peers[TurnOf(message, layout.pieces())].insert(message.peer);
  for (const Message& message : algorithm->Incoming()) {
    if (message.kind == Message::Kind::kResult) continue;
    for (const Message& result : algorithm->Arrived(message).outgoing) {
      peers[TurnOf(result, layout.pieces())].insert(result.peer);
    }
  }
  ASSERT_EQ(static_cast<int64_t>(peers.size()), 2 * layout.pieces());
  EXPECT_EQ(peers.begin()->first, 0);
  EXPECT_EQ(peers.rbegin()->first, 2 * layout.pieces() - 1);
  for (const auto& [turn, all] : peers) EXPECT_EQ(all, (std::set<int>{0, 1, 3})) << turn;
}

TEST(LayoutTest, GivenPiecesCountWhereTheyFit) {
  const std::vector<int64_t> given = {16, 160, 33};
  const Layout layout(3, 209, 4, 5000, given);
  ASSERT_EQ(layout.pieces(), 3);
  EXPECT_EQ(layout.PieceOf(1), (Range{16, 176}));
  EXPECT_EQ(layout.SegmentOf(1, 1), (Range{64, 112}));
  EXPECT_EQ(layout.PieceOf(2), (Range{176, 209}));
  for (const auto& wrong :
       std::vector<std::vector<int64_t>>{{}, {208}, {16, 194}, {17, 192}, {0, 209}, {-16, 225}, {209, 0}}) {
    EXPECT_FALSE(Layout::Fits(209, 4, wrong));
    EXPECT_EQ(Layout(3, 209, 4, 5000, wrong).pieces(), 1);
  }
  EXPECT_TRUE(Layout::Fits(209, 4, {209}));
}

}  // namespace
}  // namespace tfsched
