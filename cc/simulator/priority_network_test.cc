// Flows with priorities: the sooner ones as if they were alone, the others in what is left.
#include "cc/simulator/priority_network.h"

#include <map>
#include <random>
#include <vector>

#include "cc/simulator/network.h"
#include "gtest/gtest.h"

namespace tfsched::simulator {
namespace {

constexpr double kByteAMicrosecond = 8e6;  // bits per second

void CollectUntil(Links* links, double until_us, std::map<int32_t, double>* ends_us) {
  while (links->NextUs() <= until_us && links->NextUs() != kNeverUs) {
    const double now_us = links->NextUs();
    std::vector<int32_t> ended;
    links->Collect(now_us, &ended);
    EXPECT_FALSE(ended.empty());
    for (const int32_t flow : ended) (*ends_us)[flow] = now_us;
  }
}

std::map<int32_t, double> Drain(Links* links) {
  std::map<int32_t, double> ends_us;
  CollectUntil(links, kNeverUs, &ends_us);
  return ends_us;
}

TEST(PriorityNetworkTest, TheOthersWaitAndGoOn) {
  PriorityNetwork network(std::vector<double>(3, kByteAMicrosecond), {0, 0}, {1, 2}, {1, 0});
  network.Start(0, 100, 0);
  network.Start(1, 50, 20);
  EXPECT_EQ(network.RateOf(0), 0);
  EXPECT_EQ(network.RateOf(1), 1);
  EXPECT_EQ(Drain(&network), (std::map<int32_t, double>{{0, 150}, {1, 70}}));
}

// Flow 0 is limited by its receiver to a quarter of what 0 sends, and flows 1 and 2 share the rest.
TEST(PriorityNetworkTest, WhatIsLeftIsShared) {
  PriorityNetwork network({4 * kByteAMicrosecond, kByteAMicrosecond, 4 * kByteAMicrosecond, 4 * kByteAMicrosecond},
                          {0, 0, 0}, {1, 2, 3}, {0, 7, 7});
  for (const int32_t flow : {0, 1, 2}) network.Start(flow, 300, 0);
  EXPECT_EQ(network.RateOf(0), 1);
  EXPECT_EQ(network.RateOf(1), 1.5);
  EXPECT_EQ(network.RateOf(2), 1.5);
  EXPECT_EQ(Drain(&network), (std::map<int32_t, double>{{0, 300}, {1, 200}, {2, 200}}));
}

TEST(PriorityNetworkTest, NothingToSendEndsAtOnceEvenWithoutBandwidth) {
  PriorityNetwork network(std::vector<double>(3, kByteAMicrosecond), {0, 0}, {1, 2}, {0, 1});
  network.Start(0, 100, 0);
  network.Start(1, 0, 10);
  EXPECT_EQ(network.NextUs(), 10);
  EXPECT_EQ(Drain(&network), (std::map<int32_t, double>{{0, 100}, {1, 10}}));
}

// With one priority it is Network. With several, those of the smallest number are as in a Network of their own, no side
// carries more than its bandwidth, and everything arrives.
TEST(PriorityNetworkTest, RandomTraffic) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const int hosts = draw(2, 5), flows = draw(1, 20), priorities = draw(1, 3);
    std::vector<double> bps;
    for (int i = 0; i < hosts; ++i) bps.push_back(kByteAMicrosecond * draw(1, 3));
    std::vector<int32_t> from, to, priority;
    for (int i = 0; i < flows; ++i) {
      from.push_back(draw(0, hosts - 1));
      to.push_back((from.back() + draw(1, hosts - 1)) % hosts);
      priority.push_back(draw(1, priorities));
    }
    PriorityNetwork network(bps, from, to, priority);
    Network first(bps, from, to);
    std::map<int32_t, double> ends_us, expected_us;
    double now_us = 0;
    for (int flow = 0; flow < flows; ++flow) {
      now_us += draw(0, 200);
      CollectUntil(&network, now_us, &ends_us);
      CollectUntil(&first, now_us, &expected_us);
      const int bytes = draw(0, 500);
      network.Start(flow, bytes, now_us);
      if (priority[static_cast<size_t>(flow)] == 1) first.Start(flow, bytes, now_us);
      std::vector<double> sending(bps.size(), 0), receiving(bps.size(), 0);
      for (int other = 0; other <= flow; ++other) {
        sending[static_cast<size_t>(from[static_cast<size_t>(other)])] += network.RateOf(other);
        receiving[static_cast<size_t>(to[static_cast<size_t>(other)])] += network.RateOf(other);
      }
      for (size_t host = 0; host < bps.size(); ++host) {
        ASSERT_LE(sending[host], bps[host] / 8e6 * (1 + 1e-9)) << "seed " << seed;
        ASSERT_LE(receiving[host], bps[host] / 8e6 * (1 + 1e-9)) << "seed " << seed;
      }
    }
    CollectUntil(&network, kNeverUs, &ends_us);
    CollectUntil(&first, kNeverUs, &expected_us);
    ASSERT_EQ(ends_us.size(), static_cast<size_t>(flows));
    for (const auto& one : expected_us) ASSERT_NEAR(ends_us.at(one.first), one.second, 1e-5) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tfsched::simulator
