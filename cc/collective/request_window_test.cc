// The window of requests: everything is asked for once, in the order of turns, and no more than fits at a time.
#include "cc/collective/request_window.h"

#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr int64_t kElementBytes = 4;

// A group whose members send only what they are asked for.
class AskingGroup {
 public:
  AskingGroup(Way way, int members, int64_t elements, int64_t piece_bytes, int64_t window_bytes, uint32_t seed)
      : window_bytes_(window_bytes), random_(seed), asked_(members), sent_(members) {
    for (int me = 0; me < members; ++me) {
      const Layout layout(members, elements, kElementBytes, piece_bytes);
      members_.push_back(MakeAlgorithm(way, layout, me));
      const std::vector<Message> incoming = members_.back()->Incoming();
      left_ += incoming.size();
      windows_.push_back(std::make_unique<RequestWindow>(incoming, members, layout.pieces(), kElementBytes, window_bytes));
      pieces_ = layout.pieces();
    }
  }

  // Messages arrive in any order; `opens`: a window may be opened at any time. False if some never arrive.
  bool Run(bool opens = false) {
    const int members = static_cast<int>(members_.size());
    for (int me = 0; me < members; ++me) {
      for (const Message& message : members_[me]->Outgoing()) sent_[me].push_back(message);
      Ask(me, windows_[me]->First());
    }
    while (true) {
      if (opens && random_() % 20 == 0) {
        window_bytes_ = 0;  // not for all members, but what is asked for is no longer looked at
        const int me = static_cast<int>(random_() % members_.size());
        Ask(me, windows_[me]->Rest());
      }
      std::vector<std::pair<int, size_t>> can;  // receiver, position among what it has asked for
      for (int me = 0; me < members; ++me) {
        for (size_t i = 0; i < asked_[me].size(); ++i) {
          if (FindSent(me, asked_[me][i]) >= 0) can.emplace_back(me, i);
        }
      }
      if (can.empty()) return left_ == 0;
      const auto [me, position] = can[random_() % can.size()];
      const Message message = asked_[me][position];
      asked_[me].erase(asked_[me].begin() + static_cast<std::ptrdiff_t>(position));
      auto& sent = sent_[message.peer];
      sent.erase(sent.begin() + FindSent(me, message));
      --left_;
      Ask(me, windows_[me]->Arrived(message));
      for (const Message& next : members_[me]->Arrived(message).outgoing) sent_[me].push_back(next);
    }
  }

  size_t asked_at_once(int me) const { return asked_[me].size(); }
  void AskFirst(int me) { Ask(me, windows_[me]->First()); }

 private:
  int FindSent(int receiver, const Message& wanted) const {
    const auto& sent = sent_[wanted.peer];
    for (size_t i = 0; i < sent.size(); ++i) {
      if (sent[i].peer == receiver &&
          std::tie(sent[i].kind, sent[i].piece, sent[i].number) == std::tie(wanted.kind, wanted.piece, wanted.number)) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void Ask(int me, const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      asked_[me].push_back(message);
      // In the order of turns, as the peer sends them.
      std::vector<int64_t>& turns = turns_[{me, message.peer}];
      if (!turns.empty()) EXPECT_LE(turns.back(), TurnOf(message, pieces_));
      turns.push_back(TurnOf(message, pieces_));
    }
    for (int peer = 0; window_bytes_ > 0 && peer < static_cast<int>(members_.size()); ++peer) {
      int64_t bytes = 0, count = 0;
      for (const Message& message : asked_[me]) {
        if (message.peer != peer) continue;
        bytes += message.range.size() * kElementBytes;
        ++count;
      }
      EXPECT_TRUE(count <= 1 || bytes <= window_bytes_);
    }
  }

  int64_t window_bytes_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Algorithm>> members_;
  std::vector<std::unique_ptr<RequestWindow>> windows_;
  std::vector<std::vector<Message>> asked_, sent_;
  std::map<std::pair<int, int>, std::vector<int64_t>> turns_;
  size_t left_ = 0;
  int64_t pieces_ = 0;
};

TEST(RequestWindowTest, EverythingArrivesWhateverTheWindow) {
  uint32_t seed = 0;
  for (const Way way : {Way::kDirect, Way::kEverybody, Way::kDoubling, Way::kRing}) {
    for (const int members : {2, 3, 5}) {
      for (const int64_t piece : {4, 1000}) {
        for (const int64_t window : {0, 1, 128, 700, 100000}) {
          AskingGroup group(way, members, 700, piece, window, ++seed);
          EXPECT_TRUE(group.Run()) << NameOf(way) << " of " << members << ", pieces of " << piece << ", window " << window;
        }
      }
    }
  }
}

TEST(RequestWindowTest, EverythingArrivesIfWindowsAreOpened) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    AskingGroup group(Way::kDirect, 3 + static_cast<int>(seed % 3), 700, 1000, 1 + 500 * (seed % 4), seed);
    EXPECT_TRUE(group.Run(/*opens=*/true)) << seed;
  }
}

TEST(RequestWindowTest, TheRestIsAskedForOnce) {
  const Layout layout(3, 480, kElementBytes, 192);
  RequestWindow window(MakeDirect(layout, 0)->Incoming(), 3, layout.pieces(), kElementBytes, 1);
  EXPECT_EQ(window.First().size(), 2u);
  const std::vector<Message> rest = window.Rest();
  EXPECT_EQ(rest.size(), 38u);
  EXPECT_TRUE(window.Rest().empty());
  EXPECT_TRUE(window.Arrived(rest.front()).empty());
}

TEST(RequestWindowTest, AsksForWhatFits) {
  const auto asked = [](int64_t window_bytes) {
    AskingGroup group(Way::kDirect, 4, 640, 256, window_bytes, 1);  // 10 pieces, messages of 64 bytes, 20 from each peer
    group.AskFirst(0);
    return group.asked_at_once(0);
  };
  EXPECT_EQ(asked(0), 60u);
  EXPECT_EQ(asked(1), 3u);
  EXPECT_EQ(asked(64), 3u);
  EXPECT_EQ(asked(191), 6u);
  EXPECT_EQ(asked(192), 9u);
  EXPECT_EQ(asked(100000), 60u);
}

}  // namespace
}  // namespace tfsched
