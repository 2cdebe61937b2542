// What the barrier's asynchronous kernels share: statuses, and waits that end with their step.
#ifndef TFSCHED_CC_OPS_BARRIER_ASYNC_H_
#define TFSCHED_CC_OPS_BARRIER_ASYNC_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/barrier/outcome.h"
#include "cc/barrier/waiter.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/status.h"

namespace tfsched {

inline absl::Status StatusOf(const Outcome& outcome) {
  if (outcome.ok()) return absl::OkStatus();
  const absl::Status status(static_cast<absl::StatusCode>(outcome.code), outcome.message);
  // A master that has several errors reports one that is not derived.
  return outcome.derived ? tensorflow::StatusGroup::MakeDerived(status) : status;
}

inline Outcome OutcomeOf(const absl::Status& status) {
  if (status.ok()) return Outcome();
  return {static_cast<int>(status.code()), std::string(status.message()), tensorflow::StatusGroup::IsDerived(status)};
}

// Registers what ends a kernel's wait when its step is cancelled. To be registered before the wait begins: after that the
// kernel may be over at any time, and its context gone.
class CancelHook {
 public:
  explicit CancelHook(tensorflow::OpKernelContext* context)
      : manager_(context->cancellation_manager()), token_(manager_ == nullptr ? 0 : manager_->get_cancellation_token()) {}

  // False if the step is cancelled already. `cancel` must not use the kernel or its context.
  bool Register(std::function<void()> cancel) const {
    return manager_ == nullptr || manager_->RegisterCallback(token_, std::move(cancel));
  }

  // Before the kernel is done. Never waits: the one that cancels may be the caller.
  void Drop() const {
    if (manager_ != nullptr) manager_->TryDeregisterCallback(token_);
  }

 private:
  tensorflow::CancellationManager* manager_;
  tensorflow::CancellationToken token_;
};

// Lets an asynchronous kernel wait for an answer: `begin(waiter)` is to have the waiter called with an Outcome and, if that
// is OK, values; `cancel(waiter)` is to give the wait up, when the step is cancelled. The kernel ends with the error, or
// with what `finish(context, values...)` returns. All three may run when the kernel is gone: they use nothing of it.
template <typename... Values, typename Finish, typename Begin, typename Cancel>
void Await(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done, Finish finish, Begin begin,
           Cancel cancel) {
  using Answered = Waiter<const Outcome&, Values...>;
  const CancelHook hook(context);
  auto waiter = std::make_shared<Answered>(
      [context, hook, finish = std::move(finish), done = std::move(done)](const Outcome& outcome, Values... values) {
        hook.Drop();
        context->SetStatus(outcome.ok() ? finish(context, values...) : StatusOf(outcome));
        done();
      });
  const auto give_up = [cancel = std::move(cancel), waiter] { cancel(waiter); };
  if (!hook.Register(give_up)) return give_up();
  begin(waiter);
}

// For a kernel without outputs.
inline absl::Status NoOutput(tensorflow::OpKernelContext*) { return absl::OkStatus(); }

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_BARRIER_ASYNC_H_
