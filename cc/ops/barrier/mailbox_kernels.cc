// TfschedOpen, TfschedPut, TfschedTake: the kernels around the mailbox.
#include <memory>
#include <string>
#include <utility>

#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/transport/barrier.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The box of a token on the kernel's task.
absl::Status AddressOf(OpKernelContext* context, int token_index, Mailbox::Address* address) {
  const std::string& device = context->device()->name();
  address->second = device.substr(0, device.find("/device:"));
  return TokenOf(context, token_index, &address->first);
}

class OpenKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit OpenKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("slots", &slots_));
  }

  void Compute(OpKernelContext* context) override {
    Mailbox::Address address;
    OP_REQUIRES_OK(context, AddressOf(context, 0, &address));
    ProcessMailbox().Open(address, client_, slots_);
    // The step's manager is told of a cancellation, and calls back as well when it is destroyed at the step's normal end.
    const CancelHook hook(context);
    if (!hook.Register([address] { ProcessMailbox().Close(address); })) ProcessMailbox().Close(address);
    context->set_output(0, context->input(0));
  }

 private:
  std::string client_;
  int64_t slots_ = 0;
};

class PutKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit PutKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
  }

  void Compute(OpKernelContext* context) override {
    Mailbox::Address address;
    OP_REQUIRES_OK(context, AddressOf(context, 1, &address));
    switch (ProcessMailbox().PutValue(address, key_, std::make_shared<Tensor>(context->input(0)))) {
      case Mailbox::Put::kStored:
        return;
      case Mailbox::Put::kOver:
        // Only the home knows why; elsewhere the value is of no use to anybody.
        OP_REQUIRES_OK(context, StatusOf(ProcessCalls().TakeError(address.first)));
        return;
      case Mailbox::Put::kTwice:
        context->SetStatus(tensorflow::errors::Internal("tfsched: \"", key_, "\" was put twice in one step."));
        return;
    }
  }

 private:
  std::string key_;
};

class TakeKernel : public AsyncOpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit TakeKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Mailbox::Address address;
    OP_REQUIRES_OK_ASYNC(context, AddressOf(context, 0, &address), done);
    const auto finish = [](OpKernelContext* context, const Mailbox::Value& value) {
      return SetOutput(context, *static_cast<const Tensor*>(value.get()));
    };
    using Taker = std::shared_ptr<Mailbox::Taker>;
    Await<Mailbox::Value>(
        context, std::move(done), finish,
        [address, key = key_](const Taker& taker) { ProcessMailbox().Take(address, key, taker); },
        [address, key = key_](const Taker& taker) { ProcessMailbox().CancelTake(address, key, taker); });
  }

 private:
  std::string key_;
};

REGISTER_KERNEL_BUILDER(Name("TfschedOpen").Device(tensorflow::DEVICE_CPU), OpenKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedPut").Device(tensorflow::DEVICE_CPU), PutKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedTake").Device(tensorflow::DEVICE_CPU), TakeKernel);

}  // namespace
}  // namespace tfsched
