// Flows that share links: equal shares, and never more than either side has.
#include "cc/simulator/network.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched::simulator {
namespace {

constexpr double kByteAMicrosecond = 8e6;  // bits per second

// Every flow is told apart by its number; when each ends.
std::map<int32_t, double> Drain(Network* network, double now_us = 0) {
  std::map<int32_t, double> ends_us;
  while (network->NextUs() != kNeverUs) {
    now_us = network->NextUs();
    std::vector<int32_t> ended;
    network->Collect(now_us, &ended);
    EXPECT_FALSE(ended.empty());
    for (const int32_t flow : ended) ends_us[flow] = now_us;
  }
  return ends_us;
}

TEST(NetworkTest, OneFlowHasTheLinkForItself) {
  Network network({kByteAMicrosecond, kByteAMicrosecond}, {0}, {1});
  network.Start(0, 1000, 5);
  EXPECT_EQ(Drain(&network, 5), (std::map<int32_t, double>{{0, 1005}}));
}

TEST(NetworkTest, TheSlowerSideLimits) {
  Network network({kByteAMicrosecond, kByteAMicrosecond / 4}, {0, 1}, {1, 0});
  network.Start(0, 1000, 0);
  network.Start(1, 1000, 0);  // the other direction does not disturb
  EXPECT_EQ(Drain(&network), (std::map<int32_t, double>{{0, 4000}, {1, 4000}}));
}

TEST(NetworkTest, FlowsShareEqually) {
  Network network(std::vector<double>(4, kByteAMicrosecond), {0, 0, 0}, {1, 2, 3});
  network.Start(0, 100, 0);
  network.Start(1, 200, 0);
  network.Start(2, 300, 0);
  // A third each until 300; then half each: 100 more of both until 500; then the last 100 alone.
  EXPECT_EQ(Drain(&network), (std::map<int32_t, double>{{0, 300}, {1, 500}, {2, 600}}));
}

TEST(NetworkTest, AFlowMovesToTheSideThatBecomesTighter) {
  // 0 -> 2 alone, then two more leave 0: it gets a third. Then 2 receives three more, and 0's are gone.
  Network network(std::vector<double>(6, kByteAMicrosecond), {0, 0, 0, 3, 4, 5}, {2, 1, 1, 2, 2, 2});
  network.Start(0, 1000, 0);
  EXPECT_DOUBLE_EQ(network.RateOf(0), 1.0);
  network.Start(1, 100, 100);
  network.Start(2, 100, 100);
  EXPECT_DOUBLE_EQ(network.RateOf(0), 1.0 / 3);
  std::vector<int32_t> ended;
  network.Collect(400, &ended);  // flows 1 and 2 are through, flow 0 has 800 left
  EXPECT_EQ(ended.size(), 2u);
  EXPECT_DOUBLE_EQ(network.RateOf(0), 1.0);
  for (const int32_t flow : {3, 4, 5}) network.Start(flow, 50, 500);  // 700 left
  EXPECT_DOUBLE_EQ(network.RateOf(0), 0.25);
  EXPECT_EQ(network.Receiving(2), 4);
  const auto ends_us = Drain(&network, 500);
  EXPECT_NEAR(ends_us.at(3), 700, 1e-9);
  EXPECT_NEAR(ends_us.at(0), 700 + 650, 1e-9);
}

// The same with every rate worked out anew after every event.
class Slow {
 public:
  Slow(std::vector<double> bps, std::vector<int32_t> from, std::vector<int32_t> to)
      : bps_(std::move(bps)), from_(std::move(from)), to_(std::move(to)) {}

  void Start(int32_t flow, double bytes) { left_[flow] = bytes; }

  double Rate(int32_t flow) const {
    int sending = 0, receiving = 0;
    for (const auto& other : left_) {
      sending += from_[static_cast<size_t>(other.first)] == from_[static_cast<size_t>(flow)];
      receiving += to_[static_cast<size_t>(other.first)] == to_[static_cast<size_t>(flow)];
    }
    const double out = bps_[static_cast<size_t>(from_[static_cast<size_t>(flow)])] / sending;
    const double in = bps_[static_cast<size_t>(to_[static_cast<size_t>(flow)])] / receiving;
    return std::min(out, in) / 8e6;
  }

  // Runs until `until_us`.
  void Run(double* now_us, double until_us, std::map<int32_t, double>* ends_us) {
    while (!left_.empty()) {
      double step_us = until_us - *now_us;
      for (const auto& flow : left_) step_us = std::min(step_us, flow.second / Rate(flow.first));
      std::map<int32_t, double> rates;
      for (const auto& flow : left_) rates[flow.first] = Rate(flow.first);
      *now_us += step_us;
      bool any = false;
      for (auto it = left_.begin(); it != left_.end();) {
        it->second -= step_us * rates[it->first];
        if (it->second < 1e-7) {
          (*ends_us)[it->first] = *now_us;
          it = left_.erase(it);
          any = true;
        } else {
          ++it;
        }
      }
      if (!any) return;
    }
    *now_us = until_us;
  }

  const std::map<int32_t, double>& left() const { return left_; }

 private:
  const std::vector<double> bps_;
  const std::vector<int32_t> from_, to_;
  std::map<int32_t, double> left_;
};

TEST(NetworkTest, IsExactOnRandomTraffic) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const int hosts = draw(2, 6), flows = draw(1, 25);
    std::vector<double> bps;
    for (int i = 0; i < hosts; ++i) bps.push_back(kByteAMicrosecond * draw(1, 3));
    std::vector<int32_t> from, to;
    for (int i = 0; i < flows; ++i) {
      from.push_back(draw(0, hosts - 1));
      to.push_back((from.back() + draw(1, hosts - 1)) % hosts);
    }
    Network network(bps, from, to);
    Slow slow(bps, from, to);
    std::map<int32_t, double> ends_us, expected_us;
    double now_us = 0, slow_now_us = 0;
    for (int flow = 0; flow < flows; ++flow) {
      const double at_us = now_us + draw(0, 200);
      while (network.NextUs() <= at_us) {
        const double when_us = network.NextUs();
        std::vector<int32_t> ended;
        network.Collect(when_us, &ended);
        for (const int32_t one : ended) ends_us[one] = when_us;
      }
      slow.Run(&slow_now_us, at_us, &expected_us);
      slow_now_us = now_us = at_us;
      const int bytes = draw(1, 500);
      network.Start(flow, bytes, now_us);
      slow.Start(flow, bytes);
      for (const auto& one : slow.left()) {
        if (ends_us.count(one.first) == 0) {
          ASSERT_NEAR(network.RateOf(one.first), slow.Rate(one.first), 1e-9) << "seed " << seed;
        }
      }
    }
    for (const auto& one : Drain(&network, now_us)) ends_us[one.first] = one.second;
    slow.Run(&slow_now_us, 1e9, &expected_us);
    ASSERT_EQ(ends_us.size(), static_cast<size_t>(flows));
    for (const auto& one : expected_us) ASSERT_NEAR(ends_us.at(one.first), one.second, 1e-5) << "seed " << seed;
    for (int host = 0; host < hosts; ++host) {
      EXPECT_EQ(network.Sending(host), 0);
      EXPECT_EQ(network.Receiving(host), 0);
    }
  }
}

}  // namespace
}  // namespace tfsched::simulator
