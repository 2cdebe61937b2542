// Tests of the background function's numbers: a coordinator that counts along knows them.
#include "cc/barrier/run_numbers.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

RunNumber Number(int64_t epoch, int64_t index) { return {epoch, index}; }

TEST(RunNumbersTest, NobodysFsBearNone) {
  RunNumbers numbers;
  EXPECT_EQ(numbers.Next("a").epoch, 0);
  numbers.Begin("a", 7, {});
  EXPECT_EQ(numbers.Next("b").epoch, 0);
}

TEST(RunNumbersTest, CountUpWithinAnEpoch) {
  RunNumbers numbers;
  EXPECT_EQ(numbers.Begin("a", 7, {}), 0);
  for (const int64_t index : {0, 1, 2}) EXPECT_EQ(numbers.Next("a"), Number(7, index));
  EXPECT_EQ(numbers.Begin("a", 8, {}), 3);
  EXPECT_EQ(numbers.Next("a"), Number(8, 0));
}

TEST(RunNumbersTest, WhatIsRunAgainComesFirst) {
  RunNumbers numbers;
  numbers.Begin("a", 9, {{7, 4}, {8, 0}});
  EXPECT_EQ(numbers.Next("a"), Number(7, 4));
  EXPECT_EQ(numbers.Next("a"), Number(8, 0));
  EXPECT_EQ(numbers.Next("a"), Number(9, 0));
  EXPECT_EQ(numbers.Begin("a", 10, {}), 3);
}

TEST(RunNumbersTest, WhatWasNotRunAgainIsForgottenWithTheNextEpoch) {
  RunNumbers numbers;
  numbers.Begin("a", 9, {{7, 4}});
  EXPECT_EQ(numbers.Begin("a", 10, {}), 0);
  EXPECT_EQ(numbers.Next("a"), Number(10, 0));
}

}  // namespace
}  // namespace tfsched
