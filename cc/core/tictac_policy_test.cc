// Tests of the tictac policy alone: order, credit, missing ranks.
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "cc/core/policy.h"
#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr int64_t kGraceUs = 100;
constexpr int64_t kHourUs = 3600LL * 1000 * 1000;

// A policy and the tasks it was given, addressed by rank.
class Fixture {
 public:
  Fixture(int count, int64_t credit_bytes) {
    group_.count = count;
    PolicyOptions options;
    options.count = count;
    options.credit_bytes = credit_bytes;
    options.grace_us = kGraceUs;
    policy_ = MakePolicy("tictac", options);
  }

  uint64_t Add(int rank, int64_t now_us, int64_t bytes = 1) {
    CommTask task = TaskOf(group_, rank, bytes);
    task.id = ++last_id_;
    tasks_[task.id] = task;
    policy_->Add(task, now_us);
    return task.id;
  }

  // The ranks that go at `now_us`.
  std::vector<int> Go(int64_t now_us) {
    std::vector<int> ranks;
    while (const uint64_t id = policy_->Next(now_us)) {
      ranks.push_back(tasks_.at(id).info->rank);
      on_wire_.push_back(id);
    }
    return ranks;
  }

  // The oldest task on the wire has been released.
  void FinishOldest(int64_t now_us) {
    policy_->Finished(tasks_.at(on_wire_.front()), now_us);
    on_wire_.erase(on_wire_.begin());
  }

  int64_t BytesOnWire() const {
    int64_t bytes = 0;
    for (const uint64_t id : on_wire_) bytes += tasks_.at(id).bytes;
    return bytes;
  }

  const std::vector<uint64_t>& on_wire() const { return on_wire_; }
  Policy& policy() { return *policy_; }

 private:
  GroupSpec group_;
  std::unique_ptr<Policy> policy_;
  std::map<uint64_t, CommTask> tasks_;
  std::vector<uint64_t> on_wire_;
  uint64_t last_id_ = 0;
};

using Order = std::vector<int>;

TEST(TicTacPolicyTest, StartsInRankOrderWhateverTheOrderOfArrival) {
  Order arrival(6);
  std::iota(arrival.begin(), arrival.end(), 0);
  const Order sorted = arrival;
  do {
    Fixture fixture(6, /*credit_bytes=*/0);
    Order started;
    for (const int rank : arrival) {
      fixture.Add(rank, 0);
      for (const int gone : fixture.Go(0)) started.push_back(gone);
    }
    ASSERT_EQ(started, sorted);
    ASSERT_TRUE(fixture.policy().Complete());
  } while (std::next_permutation(arrival.begin(), arrival.end()));
}

TEST(TicTacPolicyTest, EqualRanksGoByArrivalAndHoldBackWhatFollows) {
  Fixture fixture(3, /*credit_bytes=*/0);
  fixture.Add(2, 0);
  EXPECT_EQ(fixture.Go(0), Order({}));
  const uint64_t first = fixture.Add(0, 0);
  EXPECT_EQ(fixture.Go(0), Order({0})) << "rank 2 waits for both transfers of rank 0";
  const uint64_t second = fixture.Add(0, 0);
  EXPECT_EQ(fixture.Go(0), Order({0, 2}));
  EXPECT_EQ(fixture.on_wire()[0], first);
  EXPECT_EQ(fixture.on_wire()[1], second);
}

TEST(TicTacPolicyTest, CreditLimitsTheWireToItPlusOneTask) {
  constexpr int64_t kCredit = 10, kBytes = 4;
  Fixture fixture(8, kCredit);
  for (int rank = 0; rank < 8; ++rank) fixture.Add(rank, 0, kBytes);
  EXPECT_EQ(fixture.Go(0), Order({0, 1, 2})) << "8 bytes are below the credit, 12 are not";
  EXPECT_LT(fixture.BytesOnWire(), kCredit + kBytes);
  for (int rank = 3; rank < 8; ++rank) {
    fixture.FinishOldest(0);
    EXPECT_EQ(fixture.Go(0), Order({rank})) << "each release makes room for one";
    EXPECT_LT(fixture.BytesOnWire(), kCredit + kBytes);
  }
}

TEST(TicTacPolicyTest, TaskLargerThanTheCreditStarts) {
  Fixture fixture(3, /*credit_bytes=*/10);
  fixture.Add(0, 0, 1000);
  fixture.Add(1, 0, 1000);
  fixture.Add(2, 0, 1000);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(fixture.Go(0), Order({rank})) << "one at a time";
    fixture.FinishOldest(0);
  }
}

TEST(TicTacPolicyTest, NoCreditMeansNoLimit) {
  Fixture fixture(3, /*credit_bytes=*/0);
  for (int rank = 0; rank < 3; ++rank) fixture.Add(rank, 0, kHourUs);
  EXPECT_EQ(fixture.Go(0), Order({0, 1, 2}));
}

TEST(TicTacPolicyTest, MissingRankIsWaitedForWhileTheWireIsBusy) {
  Fixture fixture(3, /*credit_bytes=*/0);
  fixture.Add(0, 0);
  fixture.Add(2, 0);
  EXPECT_EQ(fixture.Go(0), Order({0}));
  EXPECT_EQ(fixture.Go(kHourUs), Order({})) << "the wire is busy, so waiting costs nothing";
  EXPECT_EQ(fixture.policy().WakeAtUs(), kNever);
  EXPECT_EQ(fixture.policy().step_asides(), 0);
}

TEST(TicTacPolicyTest, StepsAsideOnceTheWireHasBeenIdleForTheGrace) {
  Fixture fixture(3, /*credit_bytes=*/0);
  fixture.Add(0, 0);
  fixture.Add(2, 0);
  EXPECT_EQ(fixture.Go(0), Order({0}));
  fixture.FinishOldest(500);
  EXPECT_EQ(fixture.Go(500), Order({}));
  EXPECT_EQ(fixture.policy().WakeAtUs(), 500 + kGraceUs);
  EXPECT_EQ(fixture.Go(500 + kGraceUs - 1), Order({}));
  EXPECT_EQ(fixture.Go(500 + kGraceUs), Order({2}));
  EXPECT_EQ(fixture.policy().step_asides(), 1);
  EXPECT_EQ(fixture.policy().WakeAtUs(), kNever);
}

TEST(TicTacPolicyTest, ArrivalsStartTheGraceAnew) {
  Fixture fixture(4, /*credit_bytes=*/0);
  fixture.Add(3, 0);
  EXPECT_EQ(fixture.Go(0), Order({}));
  fixture.Add(2, kGraceUs - 1);
  EXPECT_EQ(fixture.Go(kGraceUs), Order({})) << "the sender is still producing";
  EXPECT_EQ(fixture.policy().WakeAtUs(), 2 * kGraceUs - 1);
  fixture.Add(0, kGraceUs + 1);
  fixture.Add(1, kGraceUs + 1);
  EXPECT_EQ(fixture.Go(kGraceUs + 1), Order({0, 1, 2, 3})) << "nothing is missing any more";
  EXPECT_EQ(fixture.policy().step_asides(), 0);
}

TEST(TicTacPolicyTest, OneGracePerStepHoweverManyRanksAreMissing) {
  Fixture fixture(100, /*credit_bytes=*/1);
  for (int rank = 1; rank < 100; rank += 2) fixture.Add(rank, 0);
  EXPECT_EQ(fixture.Go(0), Order({}));
  for (int rank = 1; rank < 100; rank += 2) {
    EXPECT_EQ(fixture.Go(kGraceUs), Order({rank})) << "all in the moment in which the one grace ends";
    fixture.FinishOldest(kGraceUs);
  }
  EXPECT_EQ(fixture.policy().step_asides(), 1);
  EXPECT_FALSE(fixture.policy().Complete()) << "the even ranks may still come";
}

TEST(TicTacPolicyTest, LateRanksGoFirstUnderTheCredit) {
  Fixture fixture(6, /*credit_bytes=*/1);
  for (const int rank : {3, 4, 5}) fixture.Add(rank, 0);
  EXPECT_EQ(fixture.Go(kGraceUs), Order({3}));
  fixture.Add(1, kGraceUs);
  EXPECT_EQ(fixture.Go(kGraceUs), Order({})) << "late or not, the credit holds";
  fixture.Add(0, kGraceUs);
  fixture.Add(2, kGraceUs);
  for (const int rank : {0, 1, 2, 4, 5}) {
    EXPECT_FALSE(fixture.policy().Complete());
    fixture.FinishOldest(kGraceUs);
    EXPECT_EQ(fixture.Go(kGraceUs), Order({rank}));
  }
  EXPECT_TRUE(fixture.policy().Complete());
}

}  // namespace
}  // namespace tfsched
