// Shares by priority; see priority_network.h.
#include "cc/simulator/priority_network.h"

#include <algorithm>
#include <utility>

namespace tfsched::simulator {
namespace {

// What rounding leaves of a side that is full is no bandwidth.
constexpr double kNothing = 1e-9;

}  // namespace

PriorityNetwork::PriorityNetwork(const std::vector<double>& host_bps, std::vector<int32_t> from, std::vector<int32_t> to,
                                 std::vector<int32_t> priority)
    : host_bps_(host_bps), from_(std::move(from)), to_(std::move(to)), priority_(std::move(priority)) {}

void PriorityNetwork::Start(int32_t flow, double bytes, double now_us) {
  Advance(now_us);
  Flow one;
  one.bytes_left = bytes;
  under_way_[priority_[static_cast<size_t>(flow)]][flow] = one;
  Share();
}

void PriorityNetwork::Collect(double now_us, std::vector<int32_t>* ended) {
  while (next_us_ <= now_us) {
    Advance(now_us);
    for (auto& [priority, flows] : under_way_) {
      for (auto it = flows.begin(); it != flows.end();) {
        if (it->second.due_us > now_us) {
          ++it;
          continue;
        }
        ended->push_back(it->first);
        it = flows.erase(it);
      }
    }
    Share();
  }
}

double PriorityNetwork::RateOf(int32_t flow) const {
  const auto flows = under_way_.find(priority_[static_cast<size_t>(flow)]);
  if (flows == under_way_.end()) return 0;
  const auto found = flows->second.find(flow);
  return found == flows->second.end() ? 0 : found->second.rate;
}

void PriorityNetwork::Advance(double now_us) {
  for (auto& [priority, flows] : under_way_) {
    for (auto& [number, flow] : flows) {
      flow.bytes_left = std::max(flow.bytes_left - (now_us - at_us_) * flow.rate, 0.0);
    }
  }
  at_us_ = now_us;
}

void PriorityNetwork::Share() {
  std::vector<double> out, in;  // bytes per µs that are left of each host's sides
  for (const double bps : host_bps_) out.push_back(bps / 8e6);
  in = out;
  std::vector<int32_t> leaving(out.size()), arriving(out.size());
  next_us_ = kNeverUs;
  for (auto& [priority, flows] : under_way_) {
    std::fill(leaving.begin(), leaving.end(), 0);
    std::fill(arriving.begin(), arriving.end(), 0);
    for (const auto& [number, flow] : flows) {
      ++leaving[static_cast<size_t>(from_[static_cast<size_t>(number)])];
      ++arriving[static_cast<size_t>(to_[static_cast<size_t>(number)])];
    }
    for (auto& [number, flow] : flows) {
      const auto from = static_cast<size_t>(from_[static_cast<size_t>(number)]);
      const auto to = static_cast<size_t>(to_[static_cast<size_t>(number)]);
      flow.rate = std::min(out[from] / leaving[from], in[to] / arriving[to]);
      flow.due_us = flow.bytes_left <= 0 ? at_us_ : flow.rate > 0 ? at_us_ + flow.bytes_left / flow.rate : kNeverUs;
      next_us_ = std::min(next_us_, flow.due_us);
    }
    // The next priority's part, once all of this one have theirs.
    for (const auto& [number, flow] : flows) {
      const auto from = static_cast<size_t>(from_[static_cast<size_t>(number)]);
      const auto to = static_cast<size_t>(to_[static_cast<size_t>(number)]);
      for (auto [side, host] : {std::make_pair(&out, from), std::make_pair(&in, to)}) {
        double& left = (*side)[host];
        left -= flow.rate;
        if (left < kNothing * host_bps_[host] / 8e6) left = 0;
      }
    }
  }
}

}  // namespace tfsched::simulator
