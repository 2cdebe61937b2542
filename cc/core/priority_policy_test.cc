// Tests of the policies bytescheduler and p3 alone: order over steps, credit, the one-task rule.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/policy.h"
#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Order = std::vector<int>;

constexpr int64_t kHourUs = 3600LL * 1000 * 1000;

// A policy and the tasks it was given.
class Fixture {
 public:
  Fixture(const std::string& name, int64_t credit_bytes, int64_t quick_us = 0) {
    PolicyOptions options;
    options.quick_us = quick_us;
    options.credit_bytes = credit_bytes;
    options.grace_us = kHourUs;
    policy_ = MakePolicy(name, options);
  }

  CommTask Task(int rank, int64_t bytes) {
    CommTask task = TaskOf(GroupSpec(), rank, bytes);
    task.id = ++last_id_;
    tasks_[task.id] = task;
    return task;
  }
  uint64_t Add(int rank, int64_t bytes = 1) {
    const CommTask task = Task(rank, bytes);
    policy_->Add(task, 0);
    return task.id;
  }
  void Adopt(int64_t bytes) {
    const CommTask task = Task(0, bytes);
    policy_->Adopt(task, 0);
    on_wire_.push_back(task.id);
  }
  void Remove(uint64_t id) { policy_->Remove(tasks_.at(id), 0); }
  Order Go(int64_t now_us = 0) {
    Order ranks;
    while (const uint64_t id = policy_->Next(now_us)) {
      ranks.push_back(tasks_.at(id).info->rank);
      on_wire_.push_back(id);
    }
    return ranks;
  }
  void FinishOldest(int64_t now_us = 0) {
    policy_->Finished(tasks_.at(on_wire_.front()), now_us);
    on_wire_.erase(on_wire_.begin());
  }
  Policy& policy() { return *policy_; }

 private:
  std::unique_ptr<Policy> policy_;
  std::map<uint64_t, CommTask> tasks_;
  std::vector<uint64_t> on_wire_;
  uint64_t last_id_ = 0;
};

TEST(ByteSchedulerPolicyTest, EqualRanksGoByTurnAndThenByArrival) {
  for (const char* const name : {"bytescheduler", "p3", "tictac", "prophet"}) {
    PolicyOptions options;
    options.credit_bytes = 1;
    options.count = 5;
    const auto policy = MakePolicy(name, options);
    std::map<uint64_t, CommTask> tasks;
    // Rank and turn by arrival; the last one is taken away again.
    for (const auto& [rank, turn] : std::vector<std::pair<int, int64_t>>{{1, 2}, {1, 1}, {0, 7}, {1, 1}, {1, 0}, {1, 0}}) {
      CommTask task = TaskOf(GroupSpec(), rank, 1);
      task.turn = turn;
      task.id = tasks.size() + 1;
      policy->Add(task, 0);
      tasks[task.id] = task;
    }
    policy->Remove(tasks.at(6), 0);
    std::vector<uint64_t> left;
    while (const uint64_t id = policy->Next(0)) {
      left.push_back(id);
      policy->Finished(tasks.at(id), 0);
    }
    EXPECT_EQ(left, (std::vector<uint64_t>{3, 5, 2, 4, 1})) << name;
  }
}

TEST(ByteSchedulerPolicyTest, PreemptsAsTheWindowAllows) {
  // Section 4.2: while 1 is being sent, 2, 3 and 4 arrive one after another, of rising priority.
  for (const bool window_of_two : {false, true}) {
    Fixture fixture(window_of_two ? "bytescheduler" : "p3", /*credit_bytes=*/2);
    Order order;
    const auto go = [&] {
      for (const int rank : fixture.Go()) order.push_back(5 - rank);
    };
    for (const int tensor : {1, 2, 3, 4}) {
      fixture.Add(5 - tensor);
      go();
    }
    while (order.size() < 4) {
      fixture.FinishOldest();
      go();
    }
    EXPECT_EQ(order, window_of_two ? Order({1, 2, 4, 3}) : Order({1, 4, 3, 2})) << "as in the paper";
  }
}

TEST(ByteSchedulerPolicyTest, WaitsForNoMissingRank) {
  for (const char* name : {"bytescheduler", "p3"}) {
    Fixture fixture(name, /*credit_bytes=*/1);
    fixture.Add(7);
    EXPECT_EQ(fixture.Go(), Order({7})) << name;
    EXPECT_EQ(fixture.policy().WakeAtUs(), kNever);
    EXPECT_TRUE(fixture.policy().Complete());
  }
}

TEST(ByteSchedulerPolicyTest, EqualRanksGoByArrival) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/1);
  fixture.Add(9);
  EXPECT_EQ(fixture.Go(), Order({9}));
  fixture.Add(3, 100);
  fixture.Add(2, 10);
  fixture.Add(3, 200);
  for (const int rank : {2, 3, 3}) {
    EXPECT_FALSE(fixture.policy().Complete());
    fixture.FinishOldest();
    EXPECT_EQ(fixture.Go(), Order({rank}));
  }
  EXPECT_TRUE(fixture.policy().Complete());
}

TEST(ByteSchedulerPolicyTest, TheCreditIsNotExceeded) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/10);
  for (int rank = 0; rank < 4; ++rank) fixture.Add(rank, 4);
  EXPECT_EQ(fixture.Go(), Order({0, 1})) << "8 of 10 bytes";
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({2}));
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({3}));
}

TEST(ByteSchedulerPolicyTest, ATaskThatDoesNotFitIsPutBackAndNotOvertaken) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/10);
  fixture.Add(0, 6);
  fixture.Add(1, 6);
  fixture.Add(2, 1);
  EXPECT_EQ(fixture.Go(), Order({0})) << "rank 2 would fit, but rank 1 comes first";
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({1, 2}));
}

TEST(ByteSchedulerPolicyTest, ATaskLargerThanTheCreditStartsAlone) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/10);
  fixture.Add(0, 1000);
  fixture.Add(1, 1);
  EXPECT_EQ(fixture.Go(), Order({0}));
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({1}));
}

TEST(ByteSchedulerPolicyTest, NoCreditMeansNoLimit) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/0);
  for (int rank = 0; rank < 3; ++rank) fixture.Add(rank, kHourUs);
  EXPECT_EQ(fixture.Go(), Order({0, 1, 2}));
}

TEST(ByteSchedulerPolicyTest, CreditMayChange) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/1);
  for (int rank = 0; rank < 6; ++rank) fixture.Add(rank);
  EXPECT_EQ(fixture.Go(), Order({0}));
  fixture.policy().SetCreditBytes(3);
  EXPECT_EQ(fixture.Go(), Order({1, 2}));
  fixture.policy().SetCreditBytes(1);
  fixture.FinishOldest();
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({})) << "what is on the wire uses up the smaller credit";
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({3}));
}

TEST(ByteSchedulerPolicyTest, RemovedTasksAreForgotten) {
  for (const char* name : {"bytescheduler", "p3"}) {
    Fixture fixture(name, /*credit_bytes=*/1);
    fixture.Add(0);
    EXPECT_EQ(fixture.Go(), Order({0}));
    const uint64_t removed = fixture.Add(1);
    fixture.Add(2);
    fixture.Remove(removed);
    fixture.FinishOldest();
    EXPECT_EQ(fixture.Go(), Order({2})) << name;
    EXPECT_TRUE(fixture.policy().Complete());
  }
}

TEST(ByteSchedulerPolicyTest, AdoptedTasksCountUntilTheyFinish) {
  Fixture fixture("bytescheduler", /*credit_bytes=*/10);
  fixture.Adopt(8);
  fixture.Add(0, 5);
  EXPECT_EQ(fixture.Go(), Order({}));
  fixture.FinishOldest();
  EXPECT_EQ(fixture.Go(), Order({0}));
}

TEST(P3PolicyTest, OneTaskAtATimeWhateverTheCredit) {
  for (const int64_t credit_bytes : {0, 1, 1000}) {
    Fixture fixture("p3", credit_bytes);
    for (const int rank : {2, 0, 1}) fixture.Add(rank);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(fixture.Go(), Order({rank}));
      fixture.FinishOldest();
    }
  }
}

TEST(P3PolicyTest, StopsBehindEachTaskOnlyWhileTheLinkTakesTime) {
  Fixture fixture("p3", /*credit_bytes=*/1, /*quick_us=*/500);
  for (int rank = 0; rank < 12; ++rank) fixture.Add(rank);
  EXPECT_EQ(fixture.Go(0), Order({0})) << "nothing is known yet";
  fixture.FinishOldest(501);
  EXPECT_EQ(fixture.Go(501), Order({1})) << "the link took its time";
  fixture.FinishOldest(1001);
  EXPECT_EQ(fixture.Go(1001), Order({2, 3, 4, 5})) << "it did not, so four may be on the wire";
  fixture.FinishOldest(1200);
  EXPECT_EQ(fixture.Go(1200), Order({6}));
  fixture.FinishOldest(1600);
  EXPECT_EQ(fixture.Go(1600), Order()) << "too long: three are still on the wire, and the next has to wait for all";
  fixture.FinishOldest(1601);
  fixture.FinishOldest(1602);
  EXPECT_EQ(fixture.Go(1602), Order());
  fixture.FinishOldest(1700);
  EXPECT_EQ(fixture.Go(1700), Order({7, 8, 9, 10})) << "the last one was quick again";
}

}  // namespace
}  // namespace tfsched
