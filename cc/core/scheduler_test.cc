// Tests of the scheduler: groups, counters, trace, the end of steps, the bound on idle state.
#include "cc/core/scheduler.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Order = std::vector<int>;

constexpr int64_t kGraceUs = 1000;

SchedulerOptions Options(size_t max_idle_groups = 1024) {
  SchedulerOptions options;
  options.grace_us = kGraceUs;
  options.max_idle_groups = max_idle_groups;
  return options;
}

TEST(SchedulerTest, KnowsItsPolicies) {
  const std::vector<std::string> names = PolicyNames();
  EXPECT_NE(std::find(names.begin(), names.end(), "fifo"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "tictac"), names.end());
  EXPECT_EQ(MakePolicy("no such policy", PolicyOptions()), nullptr);
}

TEST(SchedulerTest, FifoStartsAtOnceInArrivalOrder) {
  Scheduler scheduler(Options());
  GroupSpec spec = Spec(4, /*credit_bytes=*/1);
  spec.policy = "fifo";
  for (const int rank : {3, 1, 2}) scheduler.Submit(TaskOf(spec, rank, 100), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({3, 1, 2})) << "no rank and no credit holds anything back";
  scheduler.Submit(TaskOf(spec, 0, 100), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  EXPECT_EQ(scheduler.counters().reorderings, 0);
}

TEST(SchedulerTest, UnknownPolicyRunsAsFifo) {
  Scheduler scheduler(Options());
  GroupSpec spec = Spec(2, /*credit_bytes=*/1);
  spec.policy = "no such policy";
  for (const int rank : {1, 0}) scheduler.Submit(TaskOf(spec, rank, 100), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({1, 0}));
}

TEST(SchedulerTest, TellsHowMuchOfTheCreditALinkUses) {
  Scheduler scheduler(Options());
  EXPECT_EQ(scheduler.counters().credit_bytes, -1) << "nothing has been sent";
  GroupSpec spec = Spec(2, /*credit_bytes=*/500);
  spec.policy = "bytescheduler";
  for (const int rank : {0, 1}) scheduler.Submit(TaskOf(spec, rank, 400), 0);
  std::vector<Start> starts;
  scheduler.Poll(0, &starts);
  ASSERT_EQ(starts.size(), 1u) << "the second one does not fit";
  EXPECT_EQ(scheduler.counters().credit_bytes, 500);
  scheduler.Finish(starts[0].task.id, 1000000);
  scheduler.Poll(3000000, &starts);  // the link was idle for 2 s
  ASSERT_EQ(starts.size(), 2u);
  scheduler.Finish(starts[1].task.id, 4000000);
  EXPECT_EQ(scheduler.counters().sending_us, 2000000);
  EXPECT_EQ(scheduler.counters().wire_byte_seconds, 800);
  OverridesChange change;
  change.credit_bytes = 0;
  ASSERT_TRUE(scheduler.Configure(change, 4000000));
  scheduler.Submit(TaskOf(spec, 0, 1), 4000000);
  scheduler.Poll(4000000, &starts);
  EXPECT_EQ(scheduler.counters().credit_bytes, 0) << "no limit";
}

TEST(SchedulerTest, CountsWhatItDoes) {
  Scheduler scheduler(Options());
  const GroupSpec spec = Spec(4, /*credit_bytes=*/1);
  std::set<uint64_t> ids;
  ids.insert(scheduler.Submit(TaskOf(spec, 2, 30), 0));
  ids.insert(scheduler.Submit(TaskOf(spec, 1, 20), 0));
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({}));
  EXPECT_EQ(scheduler.counters().queue_depth, 2);
  EXPECT_EQ(scheduler.counters().groups, 1);

  std::vector<Start> starts = PollAt(&scheduler, kGraceUs);
  EXPECT_EQ(Ranks(starts), Order({1}));
  Counters counters = scheduler.counters();
  EXPECT_EQ(counters.tasks, 1);
  EXPECT_EQ(counters.bytes, 20);
  EXPECT_EQ(counters.on_wire_bytes, 20);
  EXPECT_EQ(counters.queue_depth, 1);
  EXPECT_EQ(counters.reorderings, 1) << "rank 1 overtook rank 2";
  EXPECT_EQ(counters.step_asides, 1);
  EXPECT_EQ(counters.late, 0);

  ids.insert(scheduler.Submit(TaskOf(spec, 0, 10), kGraceUs));
  EXPECT_EQ(scheduler.counters().late, 1) << "rank 0 came after rank 1 had gone";
  ids.insert(scheduler.Submit(TaskOf(spec, 3, 40), kGraceUs));
  EXPECT_EQ(scheduler.counters().late, 1) << "rank 3 is in time";
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(ids.count(0), 0u) << "0 means no task";

  for (const int rank : {0, 2, 3}) {
    scheduler.Finish(starts[0].task.id, kGraceUs);
    starts = PollAt(&scheduler, kGraceUs);
    EXPECT_EQ(Ranks(starts), Order({rank}));
  }
  scheduler.Finish(starts[0].task.id, kGraceUs);
  EXPECT_EQ(Ranks(PollAt(&scheduler, kGraceUs)), Order({}));
  counters = scheduler.counters();
  EXPECT_EQ(counters.tasks, 4);
  EXPECT_EQ(counters.bytes, 100);
  EXPECT_EQ(counters.on_wire_bytes, 0);
  EXPECT_EQ(counters.queue_depth, 0);
  EXPECT_EQ(counters.max_queue_depth, 3);
  EXPECT_EQ(counters.step_asides, 1) << "once per step";
  EXPECT_EQ(counters.dropped, 0);
  EXPECT_EQ(counters.groups, 0) << "a complete group is freed with its last release";
}

TEST(SchedulerTest, TracesEachTransfer) {
  Scheduler scheduler(Options());
  CommTask task = TaskOf(Spec(1), 0, 7);
  task.requested_us = 10;
  task.ready_us = 20;
  scheduler.Submit(std::move(task), 20);
  const std::vector<Start> starts = PollAt(&scheduler, 30);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(scheduler.Trace().at(0).released_us, -1);
  scheduler.Finish(starts[0].task.id, 40);

  TransferRecord bypassed;
  bypassed.name = "untagged";
  bypassed.bytes = 3;
  const uint64_t number = scheduler.RecordBypassed(bypassed);
  scheduler.FinishBypassed(number, 50);

  const std::vector<TransferRecord> trace = scheduler.Trace();
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].name, "layer0/ReadVariableOp:0");
  EXPECT_EQ(trace[0].sender, "/job:ps/replica:0/task:0");
  EXPECT_EQ(trace[0].receiver, "/job:worker/replica:0/task:0");
  EXPECT_EQ(trace[0].step_id, 1);
  EXPECT_EQ(trace[0].bytes, 7);
  EXPECT_EQ(trace[0].rank, 0);
  EXPECT_EQ(trace[0].requested_us, 10);
  EXPECT_EQ(trace[0].ready_us, 20);
  EXPECT_EQ(trace[0].started_us, 30);
  EXPECT_EQ(trace[0].released_us, 40);
  EXPECT_FALSE(trace[0].dropped);
  EXPECT_EQ(trace[1].name, "untagged");
  EXPECT_EQ(trace[1].rank, -1);
  EXPECT_EQ(trace[1].released_us, 50);
  EXPECT_EQ(scheduler.counters().bypassed_tasks, 1);
  EXPECT_EQ(scheduler.counters().bypassed_bytes, 3);
  EXPECT_EQ(scheduler.counters().tasks, 1);
  scheduler.ClearTrace();
  EXPECT_TRUE(scheduler.Trace().empty());
}

TEST(SchedulerTest, WithoutATraceItStillSchedules) {
  SchedulerOptions options = Options();
  options.trace_capacity = 0;
  Scheduler scheduler(options);
  const uint64_t id = scheduler.Submit(TaskOf(Spec(1), 0), 0);
  EXPECT_EQ(PollAt(&scheduler, 0).size(), 1u);
  scheduler.Finish(id, 0);
  EXPECT_TRUE(scheduler.Trace().empty());
}

// The other step, receiver, sender or policy goes on although the first group's wire is stuck and its credit used up.
TEST(SchedulerTest, GroupsAreIndependent) {
  const GroupSpec stuck = Spec(2, /*credit_bytes=*/1);
  GroupSpec step = stuck, receiver = stuck, sender = stuck, policy = stuck;
  step.step_id = 2;
  receiver.receiver = "/job:worker/replica:0/task:1";
  sender.sender = "/job:ps/replica:0/task:1";
  policy.policy = "fifo";
  for (const GroupSpec& other : {step, receiver, sender, policy}) {
    Scheduler scheduler(Options());
    scheduler.Submit(TaskOf(stuck, 0, 100), 0);
    scheduler.Submit(TaskOf(stuck, 1, 100), 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
    scheduler.Submit(TaskOf(other, 0), 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
    EXPECT_EQ(scheduler.counters().groups, 2);
    EXPECT_EQ(scheduler.counters().queue_depth, 1) << "the stuck group's rank 1";
  }
}

// On an emulated link untagged transfers of the same step and receiver are queued too, under fifo.
TEST(SchedulerTest, UntaggedTransfersDoNotTakeATaggedGroupsPolicyOrCount) {
  Scheduler scheduler(Options());
  GroupSpec untagged = Spec(0);
  untagged.policy = "fifo";
  scheduler.Submit(TaskOf(untagged, -1), 0);
  scheduler.Submit(TaskOf(Spec(2), 1), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({-1})) << "rank 1 waits for rank 0 under tictac";
  scheduler.Submit(TaskOf(Spec(2), 0), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0, 1}));
  EXPECT_EQ(scheduler.counters().late, 0);
}

TEST(SchedulerTest, PollTellsWhenTheFirstGraceEnds) {
  Scheduler scheduler(Options());
  GroupSpec later = Spec(2);
  later.step_id = 2;
  std::vector<Start> starts;
  EXPECT_EQ(scheduler.Poll(0, &starts), kNever);
  scheduler.Submit(TaskOf(Spec(2), 1), 100);
  EXPECT_EQ(scheduler.Poll(100, &starts), 100 + kGraceUs);
  scheduler.Submit(TaskOf(later, 1), 200);
  EXPECT_EQ(scheduler.Poll(200, &starts), 100 + kGraceUs);
  EXPECT_TRUE(starts.empty());
  EXPECT_EQ(scheduler.Poll(100 + kGraceUs, &starts), 200 + kGraceUs) << "now the other one's";
  EXPECT_EQ(starts.size(), 1u);
  EXPECT_EQ(scheduler.Poll(200 + kGraceUs, &starts), kNever);
  EXPECT_EQ(starts.size(), 2u);
}

TEST(SchedulerTest, EndStepDropsWhatIsQueuedAndFreesTheState) {
  Scheduler scheduler(Options());
  GroupSpec other = Spec(3);
  other.step_id = 2;
  for (const int rank : {1, 2}) scheduler.Submit(TaskOf(Spec(3), rank), 0);
  scheduler.Submit(TaskOf(other, 1), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({}));
  scheduler.EndStep(1, 0);
  scheduler.EndStep(7, 0);  // unknown: ignored

  std::vector<Start> starts;
  EXPECT_EQ(scheduler.Poll(0, &starts), kGraceUs) << "step 2 still waits";
  EXPECT_EQ(Ranks(starts), Order({1, 2}));
  for (const Start& start : starts) {
    EXPECT_TRUE(start.dropped);
    EXPECT_EQ(start.task.step_id, 1);
  }
  const Counters counters = scheduler.counters();
  EXPECT_EQ(counters.dropped, 2);
  EXPECT_EQ(counters.tasks, 0);
  EXPECT_EQ(counters.queue_depth, 1);
  EXPECT_EQ(counters.groups, 1);
  EXPECT_EQ(counters.on_wire_bytes, 0);
  ASSERT_EQ(scheduler.Trace().size(), 2u);
  EXPECT_TRUE(scheduler.Trace()[0].dropped);
  EXPECT_EQ(scheduler.Trace()[0].started_us, -1);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "dropped once";
}

TEST(SchedulerTest, LateFinishDoesNotPayALaterGroupWithTheSameKey) {
  Scheduler scheduler(Options());
  const GroupSpec spec = Spec(3, /*credit_bytes=*/1);
  const uint64_t old = scheduler.Submit(TaskOf(spec, 0, 100), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  scheduler.EndStep(1, 0);
  EXPECT_EQ(scheduler.counters().groups, 0);
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 100) << "gRPC still has the bytes";

  const uint64_t first = scheduler.Submit(TaskOf(spec, 0, 10), 0);
  scheduler.Submit(TaskOf(spec, 1, 10), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  scheduler.Finish(old, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "the new group's credit is still used up";
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 10);
  scheduler.Finish(first, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({1}));
}

TEST(SchedulerTest, UnknownAndRepeatedFinishesAreIgnored) {
  Scheduler scheduler(Options());
  const GroupSpec spec = Spec(3, /*credit_bytes=*/1);
  const uint64_t first = scheduler.Submit(TaskOf(spec, 0, 10), 0);
  scheduler.Submit(TaskOf(spec, 1, 10), 0);
  scheduler.Submit(TaskOf(spec, 2, 10), 0);
  scheduler.Finish(first, 0);  // not started yet
  scheduler.Finish(0, 0);
  scheduler.Finish(12345, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 10);
  scheduler.Finish(first, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({1}));
  scheduler.Finish(first, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({})) << "rank 1 is still on the wire";
  EXPECT_EQ(scheduler.counters().on_wire_bytes, 10);
}

TEST(SchedulerTest, IdleGroupsAreBoundedAndTheOldestGoFirst) {
  Scheduler scheduler(Options(/*max_idle_groups=*/3));
  GroupSpec spec = Spec(2);  // rank 1 never comes, and no step is ever ended
  for (int step = 1; step <= 10; ++step) {
    spec.step_id = step;
    const uint64_t id = scheduler.Submit(TaskOf(spec, 0), step);
    EXPECT_EQ(Ranks(PollAt(&scheduler, step)), Order({0}));
    scheduler.Finish(id, step);
    PollAt(&scheduler, step);
    EXPECT_EQ(scheduler.counters().groups, std::min(step, 3));
  }
  // Steps 8 to 10 are kept, so their rank 1 is expected; step 7 was forgotten, so its rank 1 waits for rank 0 once more.
  spec.step_id = 8;
  scheduler.Submit(TaskOf(spec, 1), 20);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 20)), Order({1}));
  spec.step_id = 7;
  scheduler.Submit(TaskOf(spec, 1), 20);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 20)), Order({}));
  EXPECT_EQ(Ranks(PollAt(&scheduler, 20 + kGraceUs)), Order({1}));
}

TEST(SchedulerTest, GroupsWithTasksAreNeverEvicted) {
  Scheduler scheduler(Options(/*max_idle_groups=*/0));
  GroupSpec queued = Spec(3, /*credit_bytes=*/1);
  scheduler.Submit(TaskOf(queued, 0), 0);
  const uint64_t second = scheduler.Submit(TaskOf(queued, 1), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  GroupSpec other = Spec(2);
  for (int step = 2; step < 10; ++step) {
    other.step_id = step;
    scheduler.Submit(TaskOf(other, 0), 0);
    const std::vector<Start> starts = PollAt(&scheduler, 0);
    ASSERT_EQ(starts.size(), 1u);
    scheduler.Finish(starts[0].task.id, 0);
    PollAt(&scheduler, 0);
    EXPECT_EQ(scheduler.counters().groups, 1);
  }
  EXPECT_EQ(scheduler.counters().queue_depth, 1);
  scheduler.EndStep(1, 0);
  const std::vector<Start> starts = PollAt(&scheduler, 0);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].task.id, second);
  EXPECT_TRUE(starts[0].dropped);
}

TEST(SchedulerTest, AnEndedIdleGroupIsForgottenEntirely) {
  Scheduler scheduler(Options(/*max_idle_groups=*/1));
  const GroupSpec spec = Spec(3, /*credit_bytes=*/1);
  scheduler.Submit(TaskOf(spec, 0), 0);
  scheduler.Finish(PollAt(&scheduler, 0).at(0).task.id, 0);
  PollAt(&scheduler, 0);  // idle now
  scheduler.EndStep(1, 0);

  // A later group with its key must not be taken for the idle one when idle groups have to go.
  const uint64_t first = scheduler.Submit(TaskOf(spec, 0), 0);
  scheduler.Submit(TaskOf(spec, 1), 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({0}));
  GroupSpec other = Spec(3);
  for (int step = 2; step < 5; ++step) {
    other.step_id = step;
    scheduler.Submit(TaskOf(other, 0), 0);
    scheduler.Finish(PollAt(&scheduler, 0).at(0).task.id, 0);
    PollAt(&scheduler, 0);
  }
  EXPECT_EQ(scheduler.counters().groups, 2) << "the busy group and the newest idle one";
  scheduler.Finish(first, 0);
  EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({1}));
}

TEST(SchedulerTest, AnIdleGroupThatGoesOnKeepsItsOrder) {
  Scheduler scheduler(Options(/*max_idle_groups=*/1));
  const GroupSpec spec = Spec(3);
  for (int rank = 0; rank < 3; ++rank) {
    const uint64_t id = scheduler.Submit(TaskOf(spec, rank), 0);
    EXPECT_EQ(Ranks(PollAt(&scheduler, 0)), Order({rank})) << "idle in between, and remembered";
    scheduler.Finish(id, 0);
    PollAt(&scheduler, 0);
  }
  EXPECT_EQ(scheduler.counters().groups, 0);
  EXPECT_EQ(scheduler.counters().step_asides, 0);
}

TEST(SchedulerTest, DropAllGivesBackEveryTaskOnce) {
  Scheduler scheduler(Options());
  GroupSpec other = Spec(2);
  other.step_id = 2;
  scheduler.Submit(TaskOf(Spec(2), 1), 0);
  scheduler.Submit(TaskOf(other, 1), 0);
  PollAt(&scheduler, 0);
  scheduler.Submit(TaskOf(Spec(3), 2), 0);
  std::vector<Start> starts;
  scheduler.DropAll(&starts);
  EXPECT_EQ(starts.size(), 3u);
  for (const Start& start : starts) EXPECT_TRUE(start.dropped);
  starts.clear();
  EXPECT_EQ(scheduler.Poll(kGraceUs, &starts), kNever);
  scheduler.DropAll(&starts);
  EXPECT_TRUE(starts.empty());
  EXPECT_EQ(scheduler.counters().groups, 0);
  EXPECT_EQ(scheduler.counters().queue_depth, 0);
}

}  // namespace
}  // namespace tfsched
