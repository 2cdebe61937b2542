// Tests of how steps are counted.
#include "cc/core/step_times.h"

#include "gtest/gtest.h"

namespace tfsched {
namespace {

TEST(StepTimesTest, StepsThatOverlapCountEach) {
  StepTimes times;
  times.Begin(7, 100);
  times.Begin(8, 150);
  times.End(7, 300);
  EXPECT_EQ(times.counters().steps, 1);
  EXPECT_EQ(times.counters().step_us, 200);
  times.End(8, 350);
  times.End(8, 999);  // told twice
  times.End(9, 999);  // never begun here
  EXPECT_EQ(times.counters().steps, 2);
  EXPECT_EQ(times.counters().step_us, 400);
}

TEST(StepTimesTest, AStepOfTwoNumbersIsCountedByTheOneWhoseEndIsTold) {
  StepTimes times;
  for (const int64_t step : {5, 6, 7}) {
    times.Begin(step, 10 * step);
    times.Begin(100 + step, 10 * step + 1);
    times.Notice(100 + step, 10 * step + 2);
    times.End(step, 10 * step + 5);
  }
  EXPECT_EQ(times.counters().steps, 3);
  EXPECT_EQ(times.counters().step_us, 15);
}

TEST(StepTimesTest, AStepWhoseEndIsToldIsNotCountedAgain) {
  StepTimes times;
  times.Begin(5, 0);
  times.Notice(5, 10);
  times.End(5, 50);
  times.Begin(6, 60);
  times.Notice(6, 70);
  times.End(6, 80);
  EXPECT_EQ(times.counters().steps, 2);
  EXPECT_EQ(times.counters().step_us, 70);
}

TEST(StepTimesTest, ANoticedStepWhoseEndIsNotToldEndsWithTheNextOne) {
  StepTimes times;
  for (const int64_t step : {5, 6, 7}) {
    times.Begin(step, 100 * step);
    for (const int64_t late_us : {10, 20, 90}) times.Notice(step, 100 * step + late_us);  // three all-reduces
  }
  EXPECT_EQ(times.counters().steps, 2);
  EXPECT_EQ(times.counters().step_us, 220);
  times.End(5, 900);  // it was told after all
  EXPECT_EQ(times.counters().steps, 2);
}

TEST(StepTimesTest, WhatTfschedAsksForIsNoStep) {
  StepTimes times;
  times.Begin(5, 0);
  times.Forget(5);
  times.Forget(-1);
  times.End(5, 10);
  EXPECT_EQ(times.counters().steps, 0);
}

TEST(StepTimesTest, BackgroundFunctionsAreNoSteps) {
  StepTimes times;
  times.Begin(-4, 0);
  times.Notice(-4, 10);
  times.Notice(-5, 20);
  times.End(-4, 30);
  EXPECT_EQ(times.counters().steps, 0);
}

TEST(StepTimesTest, WhatNeverEndsIsForgotten) {
  StepTimes times;
  const auto most = static_cast<int64_t>(StepTimes::kMostOpen);
  for (int64_t step = 0; step <= most; ++step) times.Begin(step, step);
  times.End(0, most + 10);
  EXPECT_EQ(times.counters().steps, 0) << "the oldest one has gone";
  times.End(most, most + 10);
  EXPECT_EQ(times.counters().steps, 1);
  EXPECT_EQ(times.counters().step_us, 10);
}

}  // namespace
}  // namespace tfsched
