// The shortest answer of each member counts, and of these the longest.
#include "cc/collective/answer_times.h"

#include "gtest/gtest.h"

namespace tfsched {
namespace {

TEST(AnswerTimesTest, TheShortestOfEachAndTheLongestOfThese) {
  AnswerTimes times(3, 1);
  EXPECT_EQ(times.FarthestUs(), 0);
  times.Answered(0, 70'000);
  EXPECT_EQ(times.FarthestUs(), 0);  // who has not answered may be far away
  times.Answered(2, 900);
  EXPECT_EQ(times.FarthestUs(), 70'000);
  times.Answered(0, 400);
  EXPECT_EQ(times.FarthestUs(), 900);
  times.Answered(0, 90'000);
  times.Answered(2, 3'000);
  EXPECT_EQ(times.FarthestUs(), 900);
}

TEST(AnswerTimesTest, NoTimeIsTooShortToCount) {
  AnswerTimes times(2, 0);
  times.Answered(1, 0);
  EXPECT_EQ(times.FarthestUs(), 1);
}

}  // namespace
}  // namespace tfsched
