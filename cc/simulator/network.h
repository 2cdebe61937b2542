// Hosts with duplex links, and the flows that share them.
#ifndef TFSCHED_CC_SIMULATOR_NETWORK_H_
#define TFSCHED_CC_SIMULATOR_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/simulator/links.h"

namespace tfsched::simulator {

// A flow from host a to host b moves at min(bps(a) / flows that leave a, bps(b) / flows that arrive at b): each side of a
// link gives its flows equal shares, and none of them gets more than either side gives it. So no side ever carries more than
// its bandwidth; what a flow cannot use for it is limited elsewhere is not handed to others.
//
// Each side has a virtual time, the bytes that one of its flows could have moved since the side was last empty; a flow is
// kept by the side that limits it and ends when that side's virtual time has grown by the flow's bytes. So an event costs
// O(log flows), and what changes sides when loads change.
class Network : public Links {
 public:
  // `from` and `to`: the hosts of each flow.
  Network(const std::vector<double>& host_bps, std::vector<int32_t> from, std::vector<int32_t> to);

  void Start(int32_t flow, double bytes, double now_us) override;
  double NextUs() const override { return due_.empty() ? kNeverUs : sides_[static_cast<size_t>(due_[0])].due_us; }
  void Collect(double now_us, std::vector<int32_t>* ended) override;

  // Flows under way that use the side of a host on which it sends, or receives.
  int32_t Sending(int32_t host) const { return sides_[static_cast<size_t>(2 * host)].flows; }
  int32_t Receiving(int32_t host) const { return sides_[static_cast<size_t>(2 * host + 1)].flows; }

  // Bytes per µs now; 0 if it is not under way.
  double RateOf(int32_t flow) const;

 private:
  struct Flow {
    int32_t side[2];
    int32_t keeper = -1;    // index into side: the one that limits it; -1: not under way
    int32_t heap_at = -1;   // where in the keeper's heap
    int32_t guest_at = -1;  // where in the other side's guests
    double ends_at = 0;     // in the keeper's virtual time
  };
  struct Side {
    double bps = 0;
    int32_t flows = 0;         // that use it, wherever they are kept
    double virtual_bytes = 0;  // at `at_us`
    double at_us = 0;
    double due_us = kNeverUs;     // when the first of the kept flows ends
    double peers_load = 0;        // no peer's load can be higher
    int32_t due_at = -1;          // where in due_
    std::vector<int32_t> kept;    // flows limited here: a heap by ends_at
    std::vector<int32_t> guests;  // flows limited by their other side

    double load() const { return flows / bps; }
  };

  Side& SideOf(int32_t flow, int32_t which) {
    return sides_[static_cast<size_t>(flows_[static_cast<size_t>(flow)].side[which])];
  }
  void Advance(Side* side, double now_us);
  void Keep(int32_t flow, int32_t which, double bytes_left);
  double Leave(int32_t flow);  // returns the bytes left
  void Rekey(int32_t side, double now_us);
  void LoadRose(int32_t side, double now_us);
  void LoadFell(int32_t side, double now_us);
  void Move(int32_t flow, double now_us);
  void SiftUp(Side* side, size_t at);
  void SiftDown(Side* side, size_t at);
  void Put(Side* side, size_t at, int32_t flow);
  bool Before(int32_t a, int32_t b) const;
  void DueUp(size_t at);
  void DueDown(size_t at);

  std::vector<Side> sides_;  // 2 * host: sending; 2 * host + 1: receiving
  std::vector<Flow> flows_;
  std::vector<int32_t> due_;  // sides with kept flows: a heap by due_us
  std::vector<int32_t> moving_;
};

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_NETWORK_H_
