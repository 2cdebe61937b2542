// p3: P3 (Jayarajan et al., "Priority-based Parameter Propagation", MLSys 2019): priority and stop-and-wait.
//
// The baseline that ByteScheduler's credit is measured against (its section 4.2): the next task starts when the last one has
// left, so the most urgent one never waits for more than one task, and the link is idle between two. The credit has no
// effect.
#include "cc/core/priority_policy.h"

namespace tfsched {
namespace {

class P3Policy : public PriorityPolicy {
 public:
  using PriorityPolicy::PriorityPolicy;

 protected:
  bool Fits(int64_t bytes) const override { return false; }
};

PolicyRegistrar registrar("p3", PolicySpan::kAllSteps,
                          [](const PolicyOptions& options) { return std::make_unique<P3Policy>(options); });

}  // namespace
}  // namespace tfsched
