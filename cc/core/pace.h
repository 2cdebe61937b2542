// How fast a sender's bytes leave it: from the releases of what it has handed over.
#ifndef TFSCHED_CC_CORE_PACE_H_
#define TFSCHED_CC_CORE_PACE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace tfsched {

// Only while something is on the wire all the time do releases come as fast as the link takes bytes. And then not at once:
// the kernel accepts the first ones for nothing. So a measurement begins when kSkipped bytes have been released in one busy
// period, and ends after kWindow more. Newer ones count for more: each is mixed with what was known before.
//
// A link that is faster than its sender is never busy for so long. Pauses of up to kPauseUs do not end a busy period, and
// count as its time: the link is found to be slower than it is then, but not as slow as it was before.
//
// All receivers of a sender count together, for they share its link.
class Pace {
 public:
  static constexpr int64_t kSkipped = 1 << 20;
  static constexpr int64_t kWindow = 1 << 20;
  static constexpr double kNewest = 0.25;
  static constexpr int64_t kPauseUs = 500;

  void Started(const std::string& sender, int64_t bytes, int64_t now_us) {
    Sender& one = senders_[sender];
    if (one.on_wire_bytes == 0 && now_us > one.idle_since_us + kPauseUs) {
      one.measuring = false;
      one.released = 0;
    }
    one.on_wire_bytes += bytes;
  }

  void Released(const std::string& sender, int64_t bytes, int64_t now_us) {
    Sender& one = senders_[sender];
    one.on_wire_bytes -= bytes;
    one.released += bytes;
    if (!one.measuring && one.released >= kSkipped) {
      one.measuring = true;
      one.released = 0;
      one.since_us = now_us;
    } else if (one.measuring && one.released >= kWindow && now_us > one.since_us) {
      const double us_a_byte = static_cast<double>(now_us - one.since_us) / static_cast<double>(one.released);
      one.us_a_byte = one.us_a_byte > 0 ? one.us_a_byte + kNewest * (us_a_byte - one.us_a_byte) : us_a_byte;
      one.released = 0;
      one.since_us = now_us;
    }
    one.idle_since_us = now_us;  // of use if nothing is on the wire now
  }

  // What has been handed over and is not released.
  int64_t OnWireBytes(const std::string& sender) const {
    const auto found = senders_.find(sender);
    return found == senders_.end() ? 0 : found->second.on_wire_bytes;
  }

  // 0 until something was measured.
  double UsAByte(const std::string& sender) const {
    const auto found = senders_.find(sender);
    return found == senders_.end() ? 0 : found->second.us_a_byte;
  }

  // Bits per second; 0 until something was measured.
  int64_t Bps(const std::string& sender) const { return BpsOf(UsAByte(sender)); }

  // Of the slowest sender of which something was measured.
  int64_t SlowestBps() const {
    double us_a_byte = 0;
    for (const auto& [name, sender] : senders_) us_a_byte = std::max(us_a_byte, sender.us_a_byte);
    return BpsOf(us_a_byte);
  }

 private:
  struct Sender {
    int64_t on_wire_bytes = 0;
    int64_t released = 0;  // in this busy period, or this measurement
    bool measuring = false;
    int64_t since_us = 0;
    int64_t idle_since_us = 0;
    double us_a_byte = 0;
  };

  static int64_t BpsOf(double us_a_byte) { return us_a_byte <= 0 ? 0 : static_cast<int64_t>(8e6 / us_a_byte); }

  std::map<std::string, Sender> senders_;  // this process's tasks
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_PACE_H_
