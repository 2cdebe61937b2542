// p3: P3 (Jayarajan et al., "Priority-based Parameter Propagation", MLSys 2019): priority and stop-and-wait.
//
// The baseline that ByteScheduler's credit is measured against (its section 4.2): the next task starts when the last one has
// left, so the most urgent one never waits for more than one task, and the link is idle between two. The credit has no
// effect.
//
// One addition, where `quick_us` is set. A task that left within that time did not wait for the link, which then is no
// bottleneck: stopping behind each task has nothing to win and costs a release and a start each time. So up to kWindow of
// them are on the wire at once until one has taken longer.
//
// `tfsched bench --model resnet50 --bandwidth unlimited --phase train --batch 4 --block 2 --steps 24 --settings vanilla,p3`
// measures what that gains.
#include <map>

#include "cc/core/priority_policy.h"

namespace tfsched {
namespace {

constexpr int64_t kWindow = 4;

class P3Policy : public PriorityPolicy {
 public:
  explicit P3Policy(const PolicyOptions& options) : PriorityPolicy(options), quick_us_(options.quick_us) {}

 protected:
  bool Fits(int64_t bytes) const override { return quick_ && on_wire() < kWindow; }

  void Left(uint64_t id, int64_t now_us) override {
    if (quick_us_ > 0) left_us_[id] = now_us;
  }

  void Released(uint64_t id, int64_t now_us) override {
    const auto left = left_us_.find(id);
    if (left == left_us_.end()) return;  // not started by this policy
    quick_ = now_us - left->second <= quick_us_;
    left_us_.erase(left);
  }

 private:
  const int64_t quick_us_;
  bool quick_ = false;
  std::map<uint64_t, int64_t> left_us_;  // of what is on the wire
};

PolicyRegistrar p3_registrar("p3", PolicySpan::kAllSteps,
                             [](const PolicyOptions& options) { return std::make_unique<P3Policy>(options); });

}  // namespace
}  // namespace tfsched
