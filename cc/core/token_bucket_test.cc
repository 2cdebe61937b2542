// Tests of the token bucket: the rate over any time, the burst, a change of the rate.
#include "cc/core/token_bucket.h"

#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr int64_t kByteAMicrosecond = 8000000;  // bits per second
constexpr int64_t kDayUs = 24LL * 3600 * 1000 * 1000;

TEST(TokenBucketTest, AnIdleBucketPassesItsBurstAndTheTransferThatCrossesIt) {
  TokenBucket bucket(kByteAMicrosecond);
  for (int transfer = 0; transfer < 4; ++transfer) {
    EXPECT_LE(bucket.ReadyAtUs(), kDayUs);
    bucket.Take(600, kDayUs);
  }
  EXPECT_EQ(bucket.ReadyAtUs(), kDayUs + 400) << "2400 bytes are 400 more than the burst of 2000 us";
}

TEST(TokenBucketTest, ATransferLargerThanTheBucketGoesAndIsPaidAfterwards) {
  TokenBucket bucket(kByteAMicrosecond);
  bucket.Take(1000000, kDayUs);
  EXPECT_EQ(bucket.ReadyAtUs(), kDayUs + 1000000 - TokenBucket::kBurstUs);
}

TEST(TokenBucketTest, DebtInBytesOutlivesAChangeOfTheRate) {
  TokenBucket bucket(kByteAMicrosecond);
  bucket.Take(1002000, kDayUs);
  bucket.SetRate(2 * kByteAMicrosecond, kDayUs);
  EXPECT_EQ(bucket.ReadyAtUs(), kDayUs + 500000);
  bucket.SetRate(kByteAMicrosecond / 2, kDayUs + 250000);
  EXPECT_EQ(bucket.ReadyAtUs(), kDayUs + 250000 + 1000000);
}

TEST(TokenBucketTest, TheSlowestRateAndTheLargestTransferDoNotOverflow) {
  TokenBucket bucket(1);
  for (int transfer = 0; transfer < 3; ++transfer) bucket.Take(int64_t{1} << 50, kDayUs);
  EXPECT_GT(bucket.ReadyAtUs(), int64_t{1} << 60);
}

// Transfers of random sizes that go as early as they may: no stretch of time passes more than rate * (time + burst) plus one
// transfer, and the long run reaches the rate although each is woken up to a millisecond late.
TEST(TokenBucketTest, HoldsAndReachesTheRateInTheLongRun) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int64_t largest = std::uniform_int_distribution<int64_t>(100, 5000)(random);
    const int64_t latest_us = std::uniform_int_distribution<int64_t>(0, 1000)(random);
    TokenBucket bucket(kByteAMicrosecond);
    int64_t now_us = kDayUs;
    std::vector<std::pair<int64_t, int64_t>> passed;  // when, bytes
    for (int transfer = 0; transfer < 300; ++transfer) {
      if (bucket.ReadyAtUs() > now_us) {
        now_us = bucket.ReadyAtUs() + std::uniform_int_distribution<int64_t>(0, latest_us)(random);
      }
      passed.emplace_back(now_us, std::uniform_int_distribution<int64_t>(1, largest)(random));
      bucket.Take(passed.back().second, now_us);
    }
    for (size_t from = 0; from < passed.size(); ++from) {
      int64_t bytes = 0;
      for (size_t to = from; to < passed.size(); ++to) {
        const int64_t time_us = passed[to].first - passed[from].first;
        ASSERT_LE(bytes, time_us + TokenBucket::kBurstUs + 1) << "seed " << seed;
        bytes += passed[to].second;
      }
      if (from == 0) {
        ASSERT_GE(bytes, passed.back().first - kDayUs - latest_us) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace tfsched
