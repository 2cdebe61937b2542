// TfschedAck, TfschedJoin, TfschedDrain: the kernels that wait for background calls in their home.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cc/barrier/background_steps.h"
#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/transport/barrier.h"
#include "cc/transport/runtime.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfsched {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// A year: longer than anybody waits, and far from what 64 bits of microseconds hold.
constexpr int64_t kLongestTimeoutMs = 366LL * 24 * 3600 * 1000;

class AckKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    OP_REQUIRES_OK(context, TokenOf(context, 0, &token));
    ProcessCalls().Ack(token);
  }
};

class JoinKernel : public AsyncOpKernel {
 public:
  bool IsExpensive() override { return false; }
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    int64_t token = 0;
    OP_REQUIRES_OK_ASYNC(context, TokenOf(context, 0, &token), done);
    using Joiner = std::shared_ptr<Calls::Joiner>;
    Await(
        context, std::move(done), NoOutput, [token](const Joiner& joiner) { ProcessCalls().Join(token, joiner); },
        [token](const Joiner& joiner) { ProcessCalls().CancelJoin(token, joiner); });
  }
};

class DrainKernel : public AsyncOpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit DrainKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("timeout_ms", &timeout_ms_));
    OP_REQUIRES_OK(context, context->GetAttr("returned", &returned_));
    timeout_ms_ = std::min(timeout_ms_, kLongestTimeoutMs);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ProcessStepTimes().Forget(CountedStep(context->step_id()));
    using Drainer = std::shared_ptr<Calls::Drainer>;
    const auto begin = [client = client_, timeout_ms = timeout_ms_, returned = returned_](const Drainer& drainer) {
      ProcessCalls().Drain(client, drainer, returned);
      if (timeout_ms == 0 || drainer->claimed()) return;
      ProcessAlarm().After(timeout_ms * 1000, [client, drainer, timeout_ms] {
        const int64_t outstanding = ProcessCalls().Outstanding(client);
        const std::string message = "tfsched: after " + std::to_string(timeout_ms) + " ms " + std::to_string(outstanding) +
                                    " background update(s) of this training are still outstanding; give the drain more "
                                    "time, or see whether a parameter server hangs.";
        ProcessCalls().CancelDrain(client, drainer, Outcome{kDeadlineExceededCode, message});
      });
    };
    Await(context, std::move(done), NoOutput, begin, [client = client_](const Drainer& drainer) {
      ProcessCalls().CancelDrain(client, drainer, Outcome::Derived(kCancelledCode, "tfsched: the drain was cancelled."));
    });
  }

 private:
  std::string client_;
  int64_t timeout_ms_ = 0;
  bool returned_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfschedAck").Device(tensorflow::DEVICE_CPU), AckKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedJoin").Device(tensorflow::DEVICE_CPU), JoinKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedDrain").Device(tensorflow::DEVICE_CPU), DrainKernel);

}  // namespace
}  // namespace tfsched
