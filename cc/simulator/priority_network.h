// Hosts with duplex links whose flows have priorities.
#ifndef TFSCHED_CC_SIMULATOR_PRIORITY_NETWORK_H_
#define TFSCHED_CC_SIMULATOR_PRIORITY_NETWORK_H_

#include <cstdint>
#include <map>
#include <vector>

#include "cc/simulator/links.h"

namespace tfsched::simulator {

// Flows of one priority share as in Network; flows of a larger number share what those of smaller ones leave of each side.
// Every rate is worked out anew after each event, so an event costs O(flows under way). For the few flows of jobs that share
// links; Network is for thousands.
class PriorityNetwork : public Links {
 public:
  // Of each flow the hosts that it goes from and to, and its priority: smaller is sooner.
  PriorityNetwork(const std::vector<double>& host_bps, std::vector<int32_t> from, std::vector<int32_t> to,
                  std::vector<int32_t> priority);

  void Start(int32_t flow, double bytes, double now_us) override;
  double NextUs() const override { return next_us_; }
  void Collect(double now_us, std::vector<int32_t>* ended) override;

  // Bytes per µs now; 0 if it is not under way.
  double RateOf(int32_t flow) const;

 private:
  struct Flow {
    double bytes_left = 0;  // at `at_us_`
    double rate = 0;
    double due_us = kNeverUs;
  };

  void Advance(double now_us);
  void Share();

  const std::vector<double> host_bps_;
  const std::vector<int32_t> from_, to_, priority_;
  std::map<int32_t, std::map<int32_t, Flow>> under_way_;  // by priority and number
  double at_us_ = 0;
  double next_us_ = kNeverUs;
};

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_PRIORITY_NETWORK_H_
