// Tests of how background functions' steps are told from others.
#include "cc/barrier/background_steps.h"

#include <random>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

TEST(BackgroundStepsTest, EveryTokenIsMarkedPositiveAndAnotherOne) {
  std::mt19937_64 random(5);
  int64_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t token = TokenFrom(random());
    EXPECT_GT(token, 0);
    EXPECT_LT(token, int64_t{1} << 62);
    EXPECT_NE(token, before);
    EXPECT_TRUE(IsBackgroundStep(-token));
    EXPECT_EQ(CountedStep(-token), -1);
    before = token;
  }
  EXPECT_EQ(TokenFrom(0), kTokenMark);
  EXPECT_TRUE(IsBackgroundStep(-TokenFrom(~uint64_t{0})));
}

TEST(BackgroundStepsTest, StepsOfSessionsAndOfFunctionsAreCounted) {
  EXPECT_EQ(CountedStep(0), 0);
  EXPECT_EQ(CountedStep(77), 77);
  EXPECT_EQ(CountedStep(kTokenMark), kTokenMark) << "a session's";
  EXPECT_GE(CountedStep(-1), 0);
  EXPECT_GE(CountedStep(INT64_MIN), 0);
  std::mt19937_64 random(6);
  int taken_for_background = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto step = -static_cast<int64_t>(random() >> 1);
    if (CountedStep(step) < 0) ++taken_for_background;
  }
  EXPECT_LT(taken_for_background, 20);
}

}  // namespace
}  // namespace tfsched
