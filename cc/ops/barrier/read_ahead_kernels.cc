// Kernels of the ops that send values ahead. Only TfschedSelect waits: a marker may overtake what it stands for.
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/transport/barrier.h"
#include "cc/transport/held_tensor.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

// A kernel with the two names that all of these ops have.
class NamedKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit NamedKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
  }

 protected:
  std::string client_;
  std::string key_;
};

// Reads the variable as a reader may have it: its buffer, or a copy where it is written element by element. In the first
// case `look` is called under the variable's lock.
absl::Status ReadVariable(OpKernelContext* context, tensorflow::DataType dtype, Tensor* value,
                          const std::function<void(const Var* variable)>& look) {
  tensorflow::ResourceHandle handle;
  TF_RETURN_IF_ERROR(HandleOf(context, 0, &handle));
  tensorflow::core::RefCountPtr<Var> variable;
  absl::Status status = LookupResource(context, handle, &variable);
  if (!status.ok()) return status;
  tensorflow::tf_shared_lock lock(*variable->mu());
  const Tensor& current = *variable->tensor();
  if (!current.IsInitialized()) {
    return tensorflow::errors::FailedPrecondition("Error while reading resource variable ", handle.name(),
                                                  ": it has not been initialized.");
  }
  if (current.dtype() != dtype) {
    return tensorflow::errors::InvalidArgument("Trying to read variable with wrong dtype. Expected ",
                                               tensorflow::DataTypeString(dtype), " got ",
                                               tensorflow::DataTypeString(current.dtype()));
  }
  if (!variable->copy_on_read_mode.load()) {
    *value = current;
    look(variable.get());
    return absl::OkStatus();
  }
  status = context->allocate_temp(dtype, current.shape(), value);
  if (status.ok() && current.TotalBytes() > 0) std::memcpy(value->data(), current.data(), current.TotalBytes());
  return status;
}

class ReadAheadKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit ReadAheadKernel(OpKernelConstruction* context) : NamedKernel(context), dtype_(output_type(0)) {}

  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    OP_REQUIRES_OK(context, TokenOf(context, 1, &token));
    Tensor value;
    SentAhead::Freed freed;  // when the variable's lock is released
    bool sent = false;
    if (ProcessSentAhead().Worthwhile(key_)) {
      OP_REQUIRES_OK(context, ReadVariable(context, dtype_, &value, [&](const Var* variable) {
                       if (value.NumElements() == 0) return;
                       sent = ProcessSentAhead().Sent(key_, client_, token, variable, Hold(value), &freed);
                     }));
    }
    SweepSentAhead();
    context->set_output(0, sent ? value : Tensor(dtype_, MarkerShape(token)));
  }

 private:
  const tensorflow::DataType dtype_;
};

class KeepAheadKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  using NamedKernel::NamedKernel;
  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    OP_REQUIRES_OK(context, TokenOf(context, 1, &token));
    const Tensor& value = context->input(0);
    if (TokenOfMarker(value) == 0) ProcessReceivedAhead().Put({client_, key_}, token, OpaqueOf(value));
  }
};

class ReadKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit ReadKernel(OpKernelConstruction* context) : NamedKernel(context), dtype_(output_type(0)) {}
  // The graph is gone. At worst another graph's next read is a plain one.
  ~ReadKernel() override {
    SentAhead::Freed freed;
    ProcessSentAhead().Forget(key_, &freed);
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& committed = context->input(1);
    OP_REQUIRES(context, committed.dtype() == tensorflow::DT_INT64 && committed.NumElements() == 2,
                tensorflow::errors::InvalidArgument("tfsched: ", name(), " got ", committed.DebugString(),
                                                    " for `committed`; it takes the two numbers of TfschedCommitted."));
    const int64_t token = committed.flat<int64_t>()(0);
    const bool under_way = committed.flat<int64_t>()(1) != 0;
    Tensor value;
    SentAhead::Freed freed;  // when the variable's lock is released
    // What was sent before this graph was on all tasks may have found no TfschedSelect that keeps it.
    if (!begun_.exchange(true)) ProcessSentAhead().Forget(key_, &freed);
    int64_t match = 0;
    OP_REQUIRES_OK(context, ReadVariable(context, dtype_, &value, [&](const Var* variable) {
                     match =
                         ProcessSentAhead().Match(key_, client_, token, variable, IdOf(value), /*enough=*/under_way, &freed);
                   }));
    context->set_output(0, match == 0 ? value : Tensor(dtype_, MarkerShape(match)));
  }

 private:
  const tensorflow::DataType dtype_;
  std::atomic<bool> begun_{false};
};

class SelectKernel : public AsyncOpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit SelectKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &key_.first));
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_.second));
    ProcessReceivedAhead().AddReader(key_);
  }
  ~SelectKernel() override { ProcessReceivedAhead().RemoveReader(key_); }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const int64_t token = TokenOfMarker(context->input(0));
    if (token == 0) {
      context->set_output(0, context->input(0));
      return done();
    }
    const auto finish = [](OpKernelContext* context, const ReceivedAhead::Value& value) {
      return SetOutput(context, TensorOf(value));
    };
    const auto begin = [key = key_, token](const std::shared_ptr<ReceivedAhead::Taker>& taker) {
      if (!ProcessReceivedAhead().Take(key, token, taker)) GiveUpLater(key.first, taker);
    };
    const auto cancel = [key = key_](const std::shared_ptr<ReceivedAhead::Taker>& taker) {
      if (!taker->Claim()) return;
      ProcessReceivedAhead().CancelTake(key, taker);
      taker->Call(Outcome::Derived(kCancelledCode, "tfsched: the step was cancelled."), nullptr);
    };
    Await<ReceivedAhead::Value>(context, std::move(done), finish, begin, cancel);
  }

 private:
  ReceivedAhead::Key key_;  // client, key
};

// Outputs the token of the client's last call that was joined here, and whether its background function may still be read
// ahead of others' updates.
class CommittedKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit CommittedKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("asynchronous", &asynchronous_));
  }

  void Compute(OpKernelContext* context) override {
    const int64_t token = ProcessCalls().Committed(client_);
    Tensor committed(tensorflow::DT_INT64, tensorflow::TensorShape({2}));
    committed.vec<int64_t>()(0) = token;
    committed.vec<int64_t>()(1) = asynchronous_ && ProcessCalls().IsUnderWay(client_, token) ? 1 : 0;
    context->set_output(0, committed);
  }

 private:
  std::string client_;
  bool asynchronous_ = false;
};

#define TFSCHED_REGISTER(name, kernel) REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)
TFSCHED_REGISTER("TfschedReadAhead", ReadAheadKernel);
TFSCHED_REGISTER("TfschedKeepAhead", KeepAheadKernel);
TFSCHED_REGISTER("TfschedCommitted", CommittedKernel);
TFSCHED_REGISTER("TfschedRead", ReadKernel);
TFSCHED_REGISTER("TfschedSelect", SelectKernel);
#undef TFSCHED_REGISTER

}  // namespace
}  // namespace tfsched
