// A link of limited bandwidth in software, for machines where no real one can be made.
#ifndef TFSCHED_CC_CORE_EMULATED_LINK_H_
#define TFSCHED_CC_CORE_EMULATED_LINK_H_

#include <algorithm>
#include <cstdint>

namespace tfsched {

// One sender's uplink: transfers pass one after the other at `bandwidth_bps` bits per second. Not thread safe.
class EmulatedLink {
 public:
  explicit EmulatedLink(double bandwidth_bps) : bandwidth_bps_(bandwidth_bps) {}

  // When the last byte of a transfer that starts at `now_us` has arrived.
  int64_t DeliverAtUs(int64_t now_us, int64_t bytes) {
    free_at_us_ = std::max(free_at_us_, static_cast<double>(now_us)) + static_cast<double>(bytes) * 8e6 / bandwidth_bps_;
    return static_cast<int64_t>(free_at_us_);
  }

 private:
  const double bandwidth_bps_;
  double free_at_us_ = 0;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_EMULATED_LINK_H_
