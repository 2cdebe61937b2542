// Tests of ReadyProfile: what it predicts, from what, and when it keeps quiet.
#include "cc/core/ready_profile.h"

#include <memory>
#include <optional>
#include <string>

#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr int kRanks = 4;
constexpr int kNone = -1;

CommTask TaskIn(int64_t step_id, int rank, uint64_t call = 0, int count = kRanks) {
  GroupSpec spec = Spec(count);
  spec.step_id = step_id;
  CommTask task = TaskOf(spec, rank);
  auto info = std::make_shared<TransferInfo>(*task.info);
  info->call = call;
  task.info = std::move(info);
  return task;
}

// Back-propagation: rank 3 at once, each more urgent one 10 ms behind the one before, from `begin_us` on and down to `last`.
void Step(ReadyProfile* profile, int64_t step_id, int64_t begin_us, int last = 0, int left_out = kNone, uint64_t call = 0) {
  for (int rank = kRanks - 1; rank >= last; --rank) {
    if (rank == left_out) continue;
    profile->Ready(TaskIn(step_id, rank, call), begin_us + (kRanks - 1 - rank) * 10000);
  }
}

// After so many whole steps; the next one may begin at 1 s.
ReadyProfile After(int steps, int left_out = kNone) {
  ReadyProfile profile;
  for (int step = 1; step <= steps; ++step) {
    Step(&profile, step, step * 100000, 0, left_out);
    profile.StepEnded(step);
  }
  return profile;
}

TEST(ReadyProfileTest, ExpectsNothingBeforeAFewStepsHaveShownIt) {
  for (int steps = 0; steps <= ReadyProfile::kTrusted; ++steps) {
    ReadyProfile profile = After(steps);
    EXPECT_FALSE(profile.Next(kRanks, 1000000)) << "no step is under way";
    profile.Ready(TaskIn(99, 3), 1000000);
    EXPECT_EQ(profile.Next(3, 1000000).has_value(), steps == ReadyProfile::kTrusted) << steps;
  }
}

TEST(ReadyProfileTest, PredictsTheNextMoreUrgentTransfer) {
  ReadyProfile profile = After(5);
  profile.Ready(TaskIn(99, 3), 1000000);
  EXPECT_EQ(profile.Next(3, 1000000)->at_us, 1010000) << "rank 2";
  EXPECT_EQ(profile.Next(2, 1000000)->at_us, 1020000) << "rank 1, for rank 2 is not more urgent than itself";
  EXPECT_EQ(profile.Next(1, 1000000)->at_us, 1030000);
  EXPECT_FALSE(profile.Next(0, 1000000)) << "nothing is more urgent";
  profile.Ready(TaskIn(99, 2), 1010000);
  EXPECT_EQ(profile.Next(3, 1010000)->at_us, 1020000) << "what has come is not expected";
}

TEST(ReadyProfileTest, PredictsFromTheLatestArrival) {
  ReadyProfile profile = After(5);
  profile.Ready(TaskIn(99, 3), 1000000);
  profile.Ready(TaskIn(99, 2), 1017000);
  EXPECT_EQ(profile.Next(2, 1017000)->at_us, 1027000) << "rank 2 was 7 ms late, so rank 1 will be, too";
}

TEST(ReadyProfileTest, WhatIsOverdueIsNotExpected) {
  ReadyProfile profile = After(5);
  profile.Ready(TaskIn(99, 3), 1000000);
  const int64_t until_us = profile.Next(3, 1000000)->until_us;
  EXPECT_EQ(until_us, 1010000 + ReadyProfile::kLateUs) << "it was never off";
  EXPECT_EQ(profile.Next(3, until_us - 1)->at_us, 1010000);
  EXPECT_EQ(profile.Next(3, until_us)->at_us, 1020000);
}

TEST(ReadyProfileTest, KnowsItsError) {
  ReadyProfile profile;
  for (int step = 1; step <= 40; ++step) {
    const int64_t begin_us = step * 100000;
    profile.Ready(TaskIn(step, 3), begin_us);
    profile.Ready(TaskIn(step, 2), begin_us + 10000 + (step % 2) * 4000);
    profile.StepEnded(step);
  }
  profile.Ready(TaskIn(99, 3), 10000000);
  const auto next = profile.Next(3, 10000000);
  EXPECT_NEAR(static_cast<double>(next->at_us), 10012000, 1000);
  EXPECT_NEAR(static_cast<double>(next->error_us), 2000, 600);
  EXPECT_LE(next->until_us - next->at_us, ReadyProfile::kMostLateUs);
}

TEST(ReadyProfileTest, ATransferThatWasMissingHasToBeShownAgain) {
  ReadyProfile profile = After(5);
  Step(&profile, 6, 600000, 0, /*left_out=*/1);
  profile.StepEnded(6);
  for (int step = 7; step <= 9; ++step) {
    profile.Ready(TaskIn(step, 3), step * 100000);
    profile.Ready(TaskIn(step, 2), step * 100000 + 10000);
    EXPECT_EQ(profile.Next(2, step * 100000 + 10000)->at_us, step * 100000 + 30000) << "rank 0, not rank 1";
    profile.Ready(TaskIn(step, 1), step * 100000 + 20000);
    profile.Ready(TaskIn(step, 0), step * 100000 + 30000);
    profile.StepEnded(step);
  }
  profile.Ready(TaskIn(10, 3), 1000000);
  EXPECT_EQ(profile.Next(2, 1000000)->at_us, 1020000) << "rank 1 came three times";
}

TEST(ReadyProfileTest, AnEndedStepIsForgotten) {
  ReadyProfile profile = After(5);
  profile.Ready(TaskIn(99, 3), 1000000);
  EXPECT_EQ(profile.open_steps(), 1u);
  profile.StepEnded(99);
  EXPECT_EQ(profile.open_steps(), 0u);
  EXPECT_FALSE(profile.Next(3, 1000000));
}

TEST(ReadyProfileTest, AFailureKeepsItQuietForLongerEachTime) {
  ReadyProfile profile = After(5);
  int64_t step_id = 100, now_us = 1000000;
  int quiet_before = 0;
  for (int failure = 1; failure <= 8; ++failure) {
    int quiet = -1;
    std::optional<ReadyProfile::Coming> next;
    do {
      ++quiet;
      ++step_id;
      now_us += 100000;
      profile.Ready(TaskIn(step_id, 3), now_us);
      next = profile.Next(3, now_us);
      if (next) profile.Failed(next->step);
      EXPECT_FALSE(profile.Next(3, now_us)) << "a step that failed is not predicted any more";
      for (int rank = 2; rank >= 0; --rank) profile.Ready(TaskIn(step_id, rank), now_us + (3 - rank) * 10000);
      // A quiet step says nothing of the predictions, but it is whole.
      profile.StepEnded(step_id);
    } while (!next && quiet < 200);
    ASSERT_TRUE(next) << "it tries again";
    EXPECT_TRUE(failure == 1 || quiet > 0);
    EXPECT_LE(quiet, ReadyProfile::kMostLeftOut);
    EXPECT_GE(quiet, quiet_before);
    quiet_before = quiet;
  }
  EXPECT_EQ(quiet_before, ReadyProfile::kMostLeftOut);
}

TEST(ReadyProfileTest, StepsThatShareAnIdAreToldByTheirCalls) {
  ReadyProfile profile;
  for (uint64_t call = 1; call <= 5; ++call) {
    const auto begin_us = static_cast<int64_t>(call * 100000);
    Step(&profile, 7, begin_us, 0, kNone, call);
    Step(&profile, 7, begin_us + 5000, 0, kNone, call);  // further pieces of the same tensors
    EXPECT_EQ(profile.open_steps(), 1u);
  }
  profile.Ready(TaskIn(7, 3, 6), 1000000);
  EXPECT_EQ(profile.Next(3, 1000000)->at_us, 1010000);
  profile.Ready(TaskIn(7, 1, 5), 1001000);
  EXPECT_EQ(profile.Next(3, 1001000)->at_us, 1010000) << "a late piece of the call before begins nothing";
  EXPECT_EQ(profile.Next(2, 1001000)->at_us, 1020000) << "and rank 1 of this call is still expected";
}

TEST(ReadyProfileTest, GraphsHaveProfilesOfTheirOwn) {
  ReadyProfile profile;
  for (int step = 1; step <= 12; ++step) {
    if (step % 2 == 0) {
      Step(&profile, step, step * 100000);
    } else {
      profile.Ready(TaskIn(step, 1, 0, /*count=*/2), step * 100000);
      profile.Ready(TaskIn(step, 0, 0, /*count=*/2), step * 100000 + 33000);
    }
    profile.StepEnded(step);
  }
  profile.Ready(TaskIn(13, 1, 0, /*count=*/2), 2000000);
  EXPECT_EQ(profile.Next(1, 2000000)->at_us, 2033000);
  profile.StepEnded(13);
  profile.Ready(TaskIn(14, 3), 2100000);
  EXPECT_EQ(profile.Next(3, 2100000)->at_us, 2110000);
}

TEST(ReadyProfileTest, ItsMemoryIsBounded) {
  ReadyProfile profile;
  for (int step = 1; step <= 100; ++step) profile.Ready(TaskIn(step, 0, 0, /*count=*/step), step);
  EXPECT_LE(profile.graphs(), ReadyProfile::kMostGraphs);
  EXPECT_LE(profile.open_steps(), ReadyProfile::kMostOpen);
  // Too many transfers: learned by heart would be slow, so nothing is predicted.
  const int many = static_cast<int>(ReadyProfile::kMostTransfers) + 10;
  for (int step = 1000; step <= 1005; ++step) {
    for (int rank = many - 1; rank >= 0; --rank) profile.Ready(TaskIn(step, rank, 0, many), step * 100000 - rank);
    profile.StepEnded(step);
  }
  profile.Ready(TaskIn(2000, many - 1, 0, many), 900000000);
  EXPECT_FALSE(profile.Next(many, 900000000));

  ReadyProfiles profiles(/*most=*/3);
  const auto held = profiles.Of({"a", "in use"});
  for (int link = 0; link < 10; ++link) profiles.Of({"ps", std::to_string(link)});
  EXPECT_LE(profiles.size(), 3u);
  EXPECT_EQ(profiles.Of({"a", "in use"}), held);
}

}  // namespace
}  // namespace tfsched
