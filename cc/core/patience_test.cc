// Tests of patience: how long the steps of a link wait for a missing rank, by what its last steps did.
#include "cc/core/patience.h"

#include <cstdint>
#include <string>
#include <vector>

#include "cc/core/scheduler.h"
#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr int64_t kGraceUs = 1000;
constexpr int64_t kSpanUs = 4 * Patience::kPart * kGraceUs;  // a step for which four times the grace is waited

// Steps of two transfers over one link, one behind the other.
class PatienceTest : public testing::Test {
 protected:
  PatienceTest() : scheduler_(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.grace_us = kGraceUs;
    return options;
  }

  GroupSpec NextStep() {
    GroupSpec spec = Spec(2);
    spec.policy = policy_;
    spec.receiver = receiver_;
    spec.step_id = ++step_id_;
    return spec;
  }

  void Release(const std::vector<Start>& starts) {
    for (const Start& start : starts) scheduler_.Finish(start.task.id, now_us_);
    PollAt(&scheduler_, now_us_);
  }

  // Both ranks come in time; the last one is released `span_us` after the first has come.
  void WholeStep(int64_t span_us = kSpanUs) {
    const GroupSpec spec = NextStep();
    scheduler_.Submit(TaskOf(spec, 1), now_us_);
    scheduler_.Submit(TaskOf(spec, 0), now_us_);
    const std::vector<Start> starts = PollAt(&scheduler_, now_us_);
    ASSERT_EQ(starts.size(), 2u);
    now_us_ += span_us;
    Release(starts);
    scheduler_.EndStep(spec.step_id, now_us_);
  }

  // How long rank 1 waits for rank 0, which comes after all. Takes kSpanUs, as WholeStep does.
  int64_t WaitForALateRank() {
    const GroupSpec spec = NextStep();
    const int64_t begin_us = now_us_;
    scheduler_.Submit(TaskOf(spec, 1), begin_us);
    std::vector<Start> starts;
    const int64_t wait_us = scheduler_.Poll(begin_us, &starts) - begin_us;
    EXPECT_TRUE(starts.empty());
    EXPECT_TRUE(PollAt(&scheduler_, begin_us + wait_us - 1).empty());
    starts = PollAt(&scheduler_, begin_us + wait_us);
    EXPECT_EQ(starts.size(), 1u);
    now_us_ += kSpanUs;
    Release(starts);
    scheduler_.Submit(TaskOf(spec, 0), now_us_);
    Release(PollAt(&scheduler_, now_us_));
    scheduler_.EndStep(spec.step_id, now_us_);
    return wait_us;
  }

  Scheduler scheduler_;
  std::string policy_ = "tictac";
  std::string receiver_ = Spec(1).receiver;
  int64_t step_id_ = 0;
  int64_t now_us_ = 0;
};

TEST_F(PatienceTest, GrowsWithStepsWhoseRanksAllCame) {
  for (int steps = 1; steps < Patience::kWhole; ++steps) WholeStep();
  EXPECT_EQ(WaitForALateRank(), kGraceUs) << "one whole step too few";
  for (int steps = 0; steps < Patience::kWhole; ++steps) WholeStep();
  EXPECT_EQ(WaitForALateRank(), 4 * kGraceUs);
}

TEST_F(PatienceTest, ARankGivenUpTakesItBack) {
  for (int steps = 0; steps < 10; ++steps) WholeStep();
  EXPECT_EQ(WaitForALateRank(), 4 * kGraceUs);
  EXPECT_EQ(WaitForALateRank(), kGraceUs);
  for (int steps = 1; steps < Patience::kWhole; ++steps) WholeStep();
  EXPECT_EQ(WaitForALateRank(), kGraceUs) << "and it has to be earned anew";
}

TEST_F(PatienceTest, AStepThatEndsWithoutARankTakesItBack) {
  for (int steps = 0; steps < 10; ++steps) WholeStep();
  const GroupSpec spec = NextStep();
  scheduler_.Submit(TaskOf(spec, 0), now_us_);
  Release(PollAt(&scheduler_, now_us_));
  scheduler_.EndStep(spec.step_id, now_us_);
  EXPECT_EQ(WaitForALateRank(), kGraceUs);
}

TEST_F(PatienceTest, NobodyElsesStepsCount) {
  receiver_ = "/job:worker/replica:0/task:1";
  for (int steps = 0; steps < 10; ++steps) WholeStep();
  receiver_ = Spec(1).receiver;
  policy_ = "bytescheduler";
  for (int steps = 0; steps < 10; ++steps) WholeStep();
  policy_ = "tictac";
  EXPECT_EQ(WaitForALateRank(), kGraceUs);
}

// A step with a missing rank loses 1/32 of a step at most, or the grace it would lose anyway; and never much.
TEST_F(PatienceTest, IsInProportionToAStep) {
  for (int steps = 0; steps < 10; ++steps) WholeStep(/*span_us=*/10);
  EXPECT_EQ(WaitForALateRank(), kGraceUs);
  for (int steps = 0; steps < 10; ++steps) WholeStep(/*span_us=*/1000LL * 1000 * 1000);
  EXPECT_EQ(WaitForALateRank(), Patience::kMost * kGraceUs);
}

// What is still on the wire when the step is known to be over says nothing about its ranks.
TEST_F(PatienceTest, AStepThatEndsBeforeItsLastReleaseIsWhole) {
  for (int steps = 0; steps < Patience::kWhole; ++steps) {
    const GroupSpec spec = NextStep();
    for (const int rank : {0, 1}) scheduler_.Submit(TaskOf(spec, rank), now_us_);
    EXPECT_EQ(PollAt(&scheduler_, now_us_).size(), 2u);
    now_us_ += kSpanUs;
    scheduler_.EndStep(spec.step_id, now_us_);
  }
  EXPECT_EQ(WaitForALateRank(), 4 * kGraceUs);
}

// A group that another policy began cannot know its ranks.
TEST_F(PatienceTest, StepsUnderTwoPoliciesDoNotCount) {
  for (int steps = 0; steps < Patience::kWhole; ++steps) WholeStep();
  const GroupSpec spec = NextStep();
  scheduler_.Submit(TaskOf(spec, 1), now_us_);
  OverridesChange change;
  change.policy = "fifo";
  ASSERT_TRUE(scheduler_.Configure(change, now_us_));
  change.policy = kGraphPolicy;
  ASSERT_TRUE(scheduler_.Configure(change, now_us_));
  scheduler_.EndStep(spec.step_id, now_us_);
  PollAt(&scheduler_, now_us_);
  EXPECT_EQ(WaitForALateRank(), 4 * kGraceUs);
}

}  // namespace
}  // namespace tfsched
