// How much of their credit links use: bytes on the wire, over the time in which there are any.
#ifndef TFSCHED_CC_CORE_LINK_USE_H_
#define TFSCHED_CC_CORE_LINK_USE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tfsched {

// Two sums over all links of a process, a link being a sender and a receiver. Their quotient is what a link that sends has
// on the wire on average, which is what its credit is compared with. Time passes here with events only: of a transfer that
// is on its way since the last one nothing is counted yet, in either sum. Not thread safe.
class LinkUse {
 public:
  using Link = std::pair<std::string, std::string>;  // sender, receiver

  // What is on the wire of one link.
  struct Use {
    int64_t transfers = 0;
    int64_t bytes = 0;
    int64_t since_us = 0;
  };

  // To be looked up once, not for each transfer; lives as long as this object.
  Use* Of(const Link& link) { return &links_[link]; }

  void Started(Use* use, int64_t bytes, int64_t now_us) { Change(use, 1, bytes, now_us); }
  void Released(Use* use, int64_t bytes, int64_t now_us) { Change(use, -1, -bytes, now_us); }

  // Time in which a link had something on the wire, added up over the links.
  int64_t sending_us() const { return sending_us_; }
  // Bytes on the wire times seconds, added up over the links.
  int64_t byte_seconds() const { return static_cast<int64_t>(byte_us_ * 1e-6); }

 private:
  void Change(Use* use, int transfers, int64_t bytes, int64_t now_us) {
    const int64_t passed_us = std::max<int64_t>(now_us - use->since_us, 0);  // clocks are read before the lock is taken
    if (use->transfers > 0) {
      sending_us_ += passed_us;
      byte_us_ += static_cast<double>(use->bytes) * static_cast<double>(passed_us);
    }
    use->since_us = std::max(now_us, use->since_us);
    use->transfers += transfers;
    use->bytes += bytes;
  }

  std::map<Link, Use> links_;  // from this process's tasks
  int64_t sending_us_ = 0;
  double byte_us_ = 0;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_LINK_USE_H_
