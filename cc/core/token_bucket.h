// A cap on what is handed over in a time: a token bucket that may go into debt.
#ifndef TFSCHED_CC_CORE_TOKEN_BUCKET_H_
#define TFSCHED_CC_CORE_TOKEN_BUCKET_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tfsched {

// A transfer goes when the bucket is not in debt and then takes its bytes, so one that is larger than the bucket goes too
// and the next ones pay for it. In any time t at most rate * (t + burst) and one transfer pass. Not thread safe.
class TokenBucket {
 public:
  // What an idle bucket saves up. As much as a thread may wake up late, or the rate would not be reached.
  static constexpr int64_t kBurstUs = 2000;

  explicit TokenBucket(int64_t rate_bps) : rate_bps_(rate_bps) {}

  // The first moment at which a transfer may go.
  int64_t ReadyAtUs() const { return static_cast<int64_t>(std::ceil(paid_at_us_)); }

  void Take(int64_t bytes, int64_t now_us) {
    const double idle_since_us = std::max(paid_at_us_, static_cast<double>(now_us - kBurstUs));
    const double cost_us = static_cast<double>(bytes) * 8e6 / static_cast<double>(rate_bps_);
    paid_at_us_ = std::min(idle_since_us + cost_us, 4e18);  // stays an int64_t, 130,000 years from now
  }

  // What is owed in bytes stays owed.
  void SetRate(int64_t rate_bps, int64_t now_us) {
    const double owed_us = paid_at_us_ - static_cast<double>(now_us);
    if (owed_us > 0) {
      const double owed_now_us = owed_us * static_cast<double>(rate_bps_) / static_cast<double>(rate_bps);
      paid_at_us_ = std::min(static_cast<double>(now_us) + owed_now_us, 4e18);
    }
    rate_bps_ = rate_bps;
  }

 private:
  int64_t rate_bps_;
  double paid_at_us_ = 0;  // when the debt is paid off
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_TOKEN_BUCKET_H_
