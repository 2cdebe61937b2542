// bytescheduler: ByteScheduler's Algorithm 1 (section 4.2): a priority queue and a window of credit, over all steps.
//
// The task with the lowest rank is handed to gRPC while its bytes fit into what is left of the credit; a release returns
// them. A larger credit fills the link better, a smaller one lets an urgent task that comes late overtake more.
//
// Where this differs from Algorithm 1 as printed:
// * A task that was popped and does not fit is dropped there (line 15). Here it stays in the queue.
// * A task as large as the whole credit never starts there. Here one task may start whenever nothing is on the wire.
// * A task fits there only if it is smaller than the credit left (line 16). Here equal is enough, so that a credit of n
//   partitions is a window of n, as in the example in the section's text.
#include "cc/core/priority_policy.h"

namespace tfsched {
namespace {

class ByteSchedulerPolicy : public PriorityPolicy {
 public:
  using PriorityPolicy::PriorityPolicy;

 protected:
  bool Fits(int64_t bytes) const override { return credit_bytes() <= 0 || on_wire_bytes() + bytes <= credit_bytes(); }
};

PolicyRegistrar bytescheduler_registrar("bytescheduler", PolicySpan::kAllSteps, [](const PolicyOptions& options) {
  return std::make_unique<ByteSchedulerPolicy>(options);
});

}  // namespace
}  // namespace tfsched
