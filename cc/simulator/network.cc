// Processor sharing with two servers a flow; see network.h.
#include "cc/simulator/network.h"

#include <algorithm>
#include <utility>

namespace tfsched::simulator {

Network::Network(const std::vector<double>& host_bps, std::vector<int32_t> from, std::vector<int32_t> to)
    : sides_(2 * host_bps.size()), flows_(from.size()) {
  std::vector<int32_t> degree(sides_.size(), 0);
  for (size_t side = 0; side < sides_.size(); ++side) sides_[side].bps = host_bps[side / 2];
  for (size_t flow = 0; flow < flows_.size(); ++flow) {
    flows_[flow].side[0] = 2 * from[flow];
    flows_[flow].side[1] = 2 * to[flow] + 1;
    for (const int32_t side : flows_[flow].side) ++degree[static_cast<size_t>(side)];
  }
  for (const Flow& flow : flows_) {
    for (const int which : {0, 1}) {
      const auto peer = static_cast<size_t>(flow.side[1 - which]);
      Side& side = sides_[static_cast<size_t>(flow.side[which])];
      side.peers_load = std::max(side.peers_load, degree[peer] / sides_[peer].bps);
    }
  }
}

void Network::Start(int32_t flow, double bytes, double now_us) {
  Flow& one = flows_[static_cast<size_t>(flow)];
  for (const int which : {0, 1}) {
    Side& side = SideOf(flow, which);
    Advance(&side, now_us);
    ++side.flows;
  }
  Keep(flow, SideOf(flow, 0).load() >= SideOf(flow, 1).load() ? 0 : 1, bytes);
  for (const int32_t side : one.side) LoadRose(side, now_us);
  for (const int32_t side : one.side) Rekey(side, now_us);
}

void Network::Collect(double now_us, std::vector<int32_t>* ended) {
  while (NextUs() <= now_us) {
    Side& side = sides_[static_cast<size_t>(due_[0])];
    const int32_t flow = side.kept[0];
    Flow& one = flows_[static_cast<size_t>(flow)];
    // Exactly there, whatever was lost to rounding on the way.
    side.virtual_bytes = std::max(side.virtual_bytes, one.ends_at);
    side.at_us = now_us;
    Advance(&SideOf(flow, 1 - one.keeper), now_us);
    Leave(flow);
    for (const int32_t number : one.side) --sides_[static_cast<size_t>(number)].flows;
    for (const int32_t number : one.side) LoadFell(number, now_us);
    for (const int32_t number : one.side) Rekey(number, now_us);
    ended->push_back(flow);
  }
}

double Network::RateOf(int32_t flow) const {
  const Flow& one = flows_[static_cast<size_t>(flow)];
  if (one.keeper < 0) return 0;
  return 1 / (8e6 * sides_[static_cast<size_t>(one.side[one.keeper])].load());
}

void Network::Advance(Side* side, double now_us) {
  if (side->kept.empty()) {
    side->virtual_bytes = 0;  // a short busy period has small numbers, and those of one flow are exact
  } else if (now_us > side->at_us) {
    side->virtual_bytes += (now_us - side->at_us) * side->bps / (side->flows * 8e6);
  }
  side->at_us = now_us;
}

// Both sides stand at the same time, and neither holds the flow.
void Network::Keep(int32_t flow, int32_t which, double bytes_left) {
  Flow& one = flows_[static_cast<size_t>(flow)];
  Side& keeper = SideOf(flow, which);
  one.keeper = which;
  one.ends_at = keeper.virtual_bytes + bytes_left;
  keeper.kept.push_back(flow);
  one.heap_at = static_cast<int32_t>(keeper.kept.size()) - 1;
  SiftUp(&keeper, keeper.kept.size() - 1);
  std::vector<int32_t>& guests = SideOf(flow, 1 - which).guests;
  one.guest_at = static_cast<int32_t>(guests.size());
  guests.push_back(flow);
}

double Network::Leave(int32_t flow) {
  Flow& one = flows_[static_cast<size_t>(flow)];
  Side& keeper = SideOf(flow, one.keeper);
  const double bytes_left = std::max(one.ends_at - keeper.virtual_bytes, 0.0);
  const auto at = static_cast<size_t>(one.heap_at);
  const int32_t last = keeper.kept.back();
  keeper.kept.pop_back();
  if (last != flow) {
    Put(&keeper, at, last);
    SiftUp(&keeper, at);
    SiftDown(&keeper, static_cast<size_t>(flows_[static_cast<size_t>(last)].heap_at));
  }
  std::vector<int32_t>& guests = SideOf(flow, 1 - one.keeper).guests;
  const int32_t moved = guests.back();
  guests[static_cast<size_t>(one.guest_at)] = moved;
  flows_[static_cast<size_t>(moved)].guest_at = one.guest_at;
  guests.pop_back();
  one.keeper = -1;
  return bytes_left;
}

// To the other side, which has become the tighter one.
void Network::Move(int32_t flow, double now_us) {
  const int32_t which = 1 - flows_[static_cast<size_t>(flow)].keeper;
  for (const int32_t side : flows_[static_cast<size_t>(flow)].side) Advance(&sides_[static_cast<size_t>(side)], now_us);
  Keep(flow, which, Leave(flow));
}

void Network::LoadRose(int32_t number, double now_us) {
  Side& side = sides_[static_cast<size_t>(number)];
  moving_.clear();
  for (const int32_t flow : side.guests) {
    const Flow& one = flows_[static_cast<size_t>(flow)];
    if (sides_[static_cast<size_t>(one.side[one.keeper])].load() < side.load()) moving_.push_back(flow);
  }
  for (const int32_t flow : moving_) {
    const Flow& one = flows_[static_cast<size_t>(flow)];
    const int32_t left = one.side[one.keeper];
    Move(flow, now_us);
    Rekey(left, now_us);
  }
}

void Network::LoadFell(int32_t number, double now_us) {
  Side& side = sides_[static_cast<size_t>(number)];
  if (side.load() >= side.peers_load) return;  // still tighter than any peer can be
  moving_.clear();
  for (const int32_t flow : side.kept) {
    const Flow& one = flows_[static_cast<size_t>(flow)];
    if (sides_[static_cast<size_t>(one.side[1 - one.keeper])].load() > side.load()) moving_.push_back(flow);
  }
  for (const int32_t flow : moving_) {
    Move(flow, now_us);
    const Flow& one = flows_[static_cast<size_t>(flow)];
    Rekey(one.side[one.keeper], now_us);
  }
}

void Network::Rekey(int32_t number, double now_us) {
  Side& side = sides_[static_cast<size_t>(number)];
  Advance(&side, now_us);
  if (side.kept.empty()) {
    if (side.due_at < 0) return;
    const auto at = static_cast<size_t>(side.due_at);
    side.due_at = -1;
    const int32_t last = due_.back();
    due_.pop_back();
    if (last == number) return;
    due_[at] = last;
    sides_[static_cast<size_t>(last)].due_at = static_cast<int32_t>(at);
    DueUp(at);
    DueDown(static_cast<size_t>(sides_[static_cast<size_t>(last)].due_at));
    return;
  }
  const double left = std::max(flows_[static_cast<size_t>(side.kept[0])].ends_at - side.virtual_bytes, 0.0);
  side.due_us = now_us + left * side.flows * 8e6 / side.bps;
  if (side.due_at < 0) {
    side.due_at = static_cast<int32_t>(due_.size());
    due_.push_back(number);
  }
  DueUp(static_cast<size_t>(side.due_at));
  DueDown(static_cast<size_t>(side.due_at));
}

bool Network::Before(int32_t a, int32_t b) const {
  const double first = flows_[static_cast<size_t>(a)].ends_at, second = flows_[static_cast<size_t>(b)].ends_at;
  return first < second || (first == second && a < b);
}

void Network::Put(Side* side, size_t at, int32_t flow) {
  side->kept[at] = flow;
  flows_[static_cast<size_t>(flow)].heap_at = static_cast<int32_t>(at);
}

void Network::SiftUp(Side* side, size_t at) {
  const int32_t flow = side->kept[at];
  for (; at > 0 && Before(flow, side->kept[(at - 1) / 2]); at = (at - 1) / 2) Put(side, at, side->kept[(at - 1) / 2]);
  Put(side, at, flow);
}

void Network::SiftDown(Side* side, size_t at) {
  const int32_t flow = side->kept[at];
  for (size_t child = 2 * at + 1; child < side->kept.size(); child = 2 * at + 1) {
    if (child + 1 < side->kept.size() && Before(side->kept[child + 1], side->kept[child])) ++child;
    if (!Before(side->kept[child], flow)) break;
    Put(side, at, side->kept[child]);
    at = child;
  }
  Put(side, at, flow);
}

void Network::DueUp(size_t at) {
  const auto before = [this](int32_t a, int32_t b) {
    const double first = sides_[static_cast<size_t>(a)].due_us, second = sides_[static_cast<size_t>(b)].due_us;
    return first < second || (first == second && a < b);
  };
  while (at > 0 && before(due_[at], due_[(at - 1) / 2])) {
    std::swap(due_[at], due_[(at - 1) / 2]);
    sides_[static_cast<size_t>(due_[at])].due_at = static_cast<int32_t>(at);
    at = (at - 1) / 2;
  }
  sides_[static_cast<size_t>(due_[at])].due_at = static_cast<int32_t>(at);
}

void Network::DueDown(size_t at) {
  const auto before = [this](int32_t a, int32_t b) {
    const double first = sides_[static_cast<size_t>(a)].due_us, second = sides_[static_cast<size_t>(b)].due_us;
    return first < second || (first == second && a < b);
  };
  for (size_t child = 2 * at + 1; child < due_.size(); child = 2 * at + 1) {
    if (child + 1 < due_.size() && before(due_[child + 1], due_[child])) ++child;
    if (!before(due_[child], due_[at])) break;
    std::swap(due_[at], due_[child]);
    sides_[static_cast<size_t>(due_[at])].due_at = static_cast<int32_t>(at);
    at = child;
  }
  sides_[static_cast<size_t>(due_[at])].due_at = static_cast<int32_t>(at);
}

}  // namespace tfsched::simulator
