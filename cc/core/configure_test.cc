// Tests of groups that span steps, and of changing the policy, the credit and the rate of a running scheduler.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/core/dispatcher.h"
#include "cc/core/scheduler.h"
#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Order = std::vector<int>;

constexpr int64_t kGraceUs = 1000;

SchedulerOptions Options() {
  SchedulerOptions options;
  options.grace_us = kGraceUs;
  return options;
}

GroupSpec SpecOf(const std::string& policy, int64_t credit_bytes, int64_t step_id = 1) {
  GroupSpec spec = Spec(/*count=*/8, credit_bytes);
  spec.policy = policy;
  spec.step_id = step_id;
  return spec;
}

OverridesChange ToPolicy(const std::string& policy) {
  OverridesChange change;
  change.policy = policy;
  return change;
}

OverridesChange ToCredit(int64_t credit_bytes) {
  OverridesChange change;
  change.credit_bytes = credit_bytes;
  return change;
}

OverridesChange ToRate(int64_t rate_bps) {
  OverridesChange change;
  change.rate_bps = rate_bps;
  return change;
}

TEST(SpanTest, OrdersAcrossStepsAndSharesTheCredit) {
  for (const char* policy : {"bytescheduler", "p3"}) {
    Scheduler scheduler(Options());
    const GroupSpec pushes = SpecOf(policy, /*credit_bytes=*/1, /*step_id=*/1);
    const GroupSpec next = SpecOf(policy, /*credit_bytes=*/1, /*step_id=*/2);
    scheduler.Submit(TaskOf(pushes, 7), 0);
    std::vector<Start> starts = PollAt(&scheduler, 0);
    EXPECT_EQ(Ranks(starts), Order({7}));
    scheduler.Submit(TaskOf(pushes, 6), 0);
    scheduler.Submit(TaskOf(next, 0), 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "the two steps share the link";
    EXPECT_EQ(scheduler.counters().groups, 1);
    for (const int rank : {0, 6}) {
      scheduler.Finish(starts[0].task.id, 0);
      starts = PollAt(&scheduler, 0);
      EXPECT_EQ(Ranks(starts), Order({rank})) << "the next step's urgent transfer passes the last one's";
    }
    scheduler.Finish(starts[0].task.id, 0);
    PollAt(&scheduler, 0);
    EXPECT_EQ(scheduler.counters().groups, 0) << "idle, so freed without the end of a step";
    EXPECT_EQ(scheduler.counters().late, 0);
    EXPECT_EQ(scheduler.counters().reorderings, 1);
  }
}

TEST(SpanTest, EndStepTakesOutThatStepsTasksOnly) {
  Scheduler scheduler(Options());
  const GroupSpec first = SpecOf("bytescheduler", 1, 1), second = SpecOf("bytescheduler", 1, 2);
  const uint64_t on_wire = scheduler.Submit(TaskOf(first, 0, 10), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  scheduler.Submit(TaskOf(first, 1), 0);
  scheduler.Submit(TaskOf(second, 2, 10), 0);
  scheduler.Submit(TaskOf(first, 3), 0);
  scheduler.Submit(TaskOf(second, 4, 10), 0);
  scheduler.EndStep(1, 0);
  std::vector<Start> starts = PollAt(&scheduler, 0);
  ASSERT_EQ(Ranks(starts), Order({1, 3, 2})) << "dropped, dropped, and step 2 goes on without the dead step's credit";
  EXPECT_TRUE(starts[0].dropped && starts[1].dropped);
  EXPECT_FALSE(starts[2].dropped);
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 20) << "gRPC still has the bytes of rank 0";
  scheduler.Finish(on_wire, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "credit is given back once";
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 10);
  scheduler.Finish(starts[2].task.id, 0);
  starts = PollAt(&scheduler, 0);
  EXPECT_EQ(Ranks(starts), Order({4}));
  scheduler.EndStep(2, 0);
  PollAt(&scheduler, 0);
  EXPECT_EQ(scheduler.counters().groups, 0) << "nobody waits for what is left on the wire";
  scheduler.Finish(starts[0].task.id, 0);
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 0);
}

TEST(SpanTest, TheNewestTagsCreditHolds) {
  Scheduler scheduler(Options());
  for (int rank = 0; rank < 3; ++rank) scheduler.Submit(TaskOf(SpecOf("bytescheduler", 1), rank), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  scheduler.Submit(TaskOf(SpecOf("bytescheduler", 3), 3), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({1, 2})) << "3 bytes";
}

TEST(ConfigureTest, RefusesAnUnknownPolicyAndChangesNothing) {
  Scheduler scheduler(Options());
  OverridesChange change = ToPolicy("no such policy");
  change.credit_bytes = 5;
  change.rate_bps = 6;
  EXPECT_FALSE(scheduler.Configure(change, 0));
  EXPECT_EQ(scheduler.overrides().policy, kGraphPolicy);
  EXPECT_EQ(scheduler.overrides().credit_bytes, kGraphCredit);
  EXPECT_EQ(scheduler.overrides().rate_bps, 0);
}

TEST(ConfigureTest, WhatIsNotNamedStaysAsItIs) {
  Scheduler scheduler(Options());
  EXPECT_TRUE(scheduler.Configure(ToPolicy("p3"), 0));
  EXPECT_TRUE(scheduler.Configure(ToCredit(7), 0));
  EXPECT_TRUE(scheduler.Configure(ToRate(9), 0));
  EXPECT_TRUE(scheduler.Configure(OverridesChange(), 0));
  EXPECT_EQ(scheduler.overrides().policy, "p3");
  EXPECT_EQ(scheduler.overrides().credit_bytes, 7);
  EXPECT_EQ(scheduler.overrides().rate_bps, 9);
}

TEST(ConfigureTest, CreditHoldsFromTheNextTaskOnAndIsGivenBack) {
  for (const char* policy : {"tictac", "bytescheduler"}) {
    Scheduler scheduler(Options());
    for (int rank = 0; rank < 8; ++rank) scheduler.Submit(TaskOf(SpecOf(policy, 1), rank), 0);
    std::vector<Start> starts = PollAt(&scheduler, 0);
    EXPECT_EQ(Ranks(starts), Order({0}));
    scheduler.Configure(ToCredit(3), 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({1, 2})) << "no event but the change";
    scheduler.Configure(ToCredit(kGraphCredit), 0);
    scheduler.Finish(starts[0].task.id, 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "one byte again, and two are on the wire";
    scheduler.Configure(ToCredit(0), 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({3, 4, 5, 6, 7})) << "no limit";
  }
}

TEST(ConfigureTest, CreditHoldsForGroupsThatComeLater) {
  Scheduler scheduler(Options());
  scheduler.Configure(ToCredit(2), 0);
  for (int rank = 0; rank < 4; ++rank) scheduler.Submit(TaskOf(SpecOf("tictac", 0), rank), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0, 1}));
}

TEST(ConfigureTest, QueuedTasksMoveOverAndTheWireIsAccountedFor) {
  Scheduler scheduler(Options());
  const GroupSpec spec = SpecOf("tictac", /*credit_bytes=*/1);
  for (const int rank : {5, 3, 0, 4}) scheduler.Submit(TaskOf(spec, rank, 10), 0);
  std::vector<Start> starts = PollAt(&scheduler, 0);
  EXPECT_EQ(Ranks(starts), Order({0}));
  scheduler.Configure(ToPolicy("bytescheduler"), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "rank 0 is still on the wire";
  scheduler.Finish(starts[0].task.id, 0);
  starts = PollAt(&scheduler, 0);
  EXPECT_EQ(Ranks(starts), Order({3})) << "bytescheduler waits for no missing rank";
  scheduler.Configure(ToPolicy("fifo"), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({5, 4})) << "in the order in which they came";
  const Counters counters = scheduler.counters();
  EXPECT_EQ(counters.tasks, 4);
  EXPECT_EQ(counters.queue_depth, 0);
  EXPECT_EQ(counters.dropped, 0);
  EXPECT_EQ(counters.late, 0);
  EXPECT_EQ(counters.groups, 1);
}

TEST(ConfigureTest, AStepThatIsUnderWayPaysNoGraceForTheChange) {
  Scheduler scheduler(Options());
  const GroupSpec spec = SpecOf("p3", 1);
  for (const int rank : {0, 5, 6}) scheduler.Submit(TaskOf(spec, rank), 0);
  const std::vector<Start> starts = PollAt(&scheduler, 0);
  scheduler.Configure(ToPolicy("tictac"), 0);
  scheduler.Finish(starts[0].task.id, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({5})) << "ranks 1 to 4 may have gone before the change";
  EXPECT_EQ(scheduler.counters().step_asides, 0);
  // A later step is whole, so its missing rank is waited for.
  scheduler.Submit(TaskOf(SpecOf("p3", 1, /*step_id=*/2), 1), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({}));
  EXPECT_EQ(Ranks(PollAt(&scheduler, kGraceUs)), Order({1}));
}

TEST(ConfigureTest, TransfersThatAreNotOrderedKeepTheirPolicy) {
  Scheduler scheduler(Options());
  scheduler.Configure(ToPolicy("p3"), 0);
  GroupSpec untagged = SpecOf("fifo", 0);
  for (int transfer = 0; transfer < 3; ++transfer) scheduler.Submit(TaskOf(untagged, -1), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({-1, -1, -1}));
}

TEST(ConfigureTest, AStepThatEndedIsNotPaidAfterAChange) {
  Scheduler scheduler(Options());
  const uint64_t old = scheduler.Submit(TaskOf(SpecOf("tictac", 1, 1), 0, 10), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  scheduler.EndStep(1, 0);
  scheduler.Configure(ToPolicy("bytescheduler"), 0);
  for (int rank = 0; rank < 2; ++rank) scheduler.Submit(TaskOf(SpecOf("tictac", 1, 2), rank, 10), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0})) << "the dead step's bytes use up no credit";
  scheduler.EndStep(1, 0);
  scheduler.Finish(old, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "and give none back";
}

TEST(ConfigureTest, RateCapsWhatOneReceiverIsHanded) {
  constexpr int64_t kByteAMicrosecond = 8000000, kBytes = 10000;
  for (const char* policy : {"fifo", "tictac", "bytescheduler"}) {
    Scheduler scheduler(Options());
    scheduler.Configure(ToRate(kByteAMicrosecond), 0);
    GroupSpec other = SpecOf(policy, 0);
    other.receiver = "/job:worker/replica:0/task:1";
    // Two steps to one receiver share its cap.
    for (int rank = 0; rank < 2; ++rank) {
      for (const int64_t step : {1, 2}) scheduler.Submit(TaskOf(SpecOf(policy, 0, step), rank, kBytes), 0);
    }
    scheduler.Submit(TaskOf(other, 0, kBytes), 0);
    std::vector<Start> starts;
    int64_t now_us = 100 * kBytes;
    const int64_t begin_us = now_us;
    now_us = scheduler.Poll(now_us, &starts);
    EXPECT_EQ(starts.size(), 2u) << "one to each receiver";
    EXPECT_EQ(now_us, begin_us + kBytes - TokenBucket::kBurstUs);
    for (size_t started = 3; started < 5; ++started) {
      now_us = scheduler.Poll(now_us, &starts);
      EXPECT_EQ(starts.size(), started) << policy;
      EXPECT_EQ(now_us, begin_us + static_cast<int64_t>(started - 1) * kBytes - TokenBucket::kBurstUs);
    }
    scheduler.Configure(ToRate(0), now_us - 1);
    EXPECT_EQ(scheduler.Poll(now_us - 1, &starts), kNever);
    EXPECT_EQ(starts.size(), 5u) << "the cap is gone at once";
  }
}

// Submits, releases, ends of steps and changes race; every task is started or dropped exactly once.
TEST(ConfigureTest, EveryTaskOnceWhileThreadsRaceWithChanges) {
  constexpr int kThreads = 2, kSteps = 60, kRanks = 10;
  std::atomic<int> calls{0}, twice{0};
  std::atomic<bool> stop{false};
  std::vector<std::atomic<int>> called(kThreads * kSteps * kRanks);
  {
    Dispatcher::Options options;
    options.scheduler.grace_us = 200;
    options.now_us = [] {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    };
    Dispatcher dispatcher(options);
    std::thread changer([&] {
      const char* policies[] = {"bytescheduler", "tictac", "p3", "fifo", "graph"};
      for (int change = 0; !stop; ++change) {
        OverridesChange changes = ToPolicy(policies[change % 5]);
        changes.credit_bytes = change % 4 - 1;
        changes.rate_bps = change % 3 == 0 ? 0 : 100000000;
        EXPECT_TRUE(dispatcher.Configure(changes));
        EXPECT_NE(dispatcher.scheduler().overrides().policy, "");
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int step = 0; step < kSteps; ++step) {
          const GroupSpec spec = SpecOf(step % 2 == 0 ? "bytescheduler" : "tictac", 3, thread * kSteps + step);
          for (int rank = 0; rank < kRanks; ++rank) {
            CommTask task = TaskOf(spec, (rank * 7 + step) % kRanks);
            const int number = (thread * kSteps + step) * kRanks + rank;
            task.start = [&, number](uint64_t id, bool dropped) {
              if (called[static_cast<size_t>(number)]++ != 0) ++twice;
              ++calls;
              if (!dropped) dispatcher.Finish(id);
            };
            dispatcher.Submit(std::move(task));
          }
          if (step % 3 == 0) dispatcher.EndStep(spec.step_id);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (calls < kThreads * kSteps * kRanks && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(calls, kThreads * kSteps * kRanks);
    stop = true;
    changer.join();
  }
  EXPECT_EQ(twice, 0);
}

}  // namespace
}  // namespace tfsched
