// Kernels of the ops that send values ahead. None of them waits: what a marker stands for is here when the marker comes.
#include <cstring>
#include <string>
#include <utility>

#include "cc/transport/read_ahead.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

// A kernel with the two names that all of these ops but one have.
class NamedKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit NamedKernel(OpKernelConstruction* context) : OpKernel(context) {
    if (context->HasAttr("client")) OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
  }

 protected:
  std::string client_;
  std::string key_;
};

// The variable's value as a reader may have it: its buffer, or a copy where it is written element by element. `shared` says
// which.
absl::Status ReadVariable(OpKernelContext* context, tensorflow::DataType dtype, Tensor* value, bool* shared) {
  tensorflow::core::RefCountPtr<Var> variable;
  absl::Status status = LookupResource(context, tensorflow::HandleFromInput(context, 0), &variable);
  if (!status.ok()) return status;
  tensorflow::tf_shared_lock lock(*variable->mu());
  const Tensor& current = *variable->tensor();
  if (!current.IsInitialized()) {
    return tensorflow::errors::FailedPrecondition("Error while reading resource variable ",
                                                  tensorflow::HandleFromInput(context, 0).name(),
                                                  ": it has not been initialized.");
  }
  if (current.dtype() != dtype) {
    return tensorflow::errors::InvalidArgument("Trying to read variable with wrong dtype. Expected ",
                                               tensorflow::DataTypeString(dtype), " got ",
                                               tensorflow::DataTypeString(current.dtype()));
  }
  *shared = !variable->copy_on_read_mode.load();
  if (*shared) {
    *value = current;
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
    const int64_t token = context->input(1).scalar<int64_t>()();
    Tensor value;
    bool shared = false;
    if (ProcessSentAhead().Worthwhile(key_)) OP_REQUIRES_OK(context, ReadVariable(context, dtype_, &value, &shared));
    if (!shared || value.NumElements() == 0) {
      context->set_output(0, Tensor(dtype_, MarkerShape(token)));
      return;
    }
    ProcessSentAhead().Sent(key_, client_, token, value);
    context->set_output(0, value);
  }

 private:
  const tensorflow::DataType dtype_;
};

class StockKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  using NamedKernel::NamedKernel;
  void Compute(OpKernelContext* context) override {
    const int64_t token = context->input(1).scalar<int64_t>()();
    if (TokenOfMarker(context->input(0)) == 0) ProcessStock().Put({client_, key_}, token, context->input(0));
    context->set_output(0, context->input(1));
  }
};

class ArrivedKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  using NamedKernel::NamedKernel;
  void Compute(OpKernelContext* context) override {
    ProcessSentAhead().Arrived(key_, context->input(0).scalar<int64_t>()());
  }
};

class ReadKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit ReadKernel(OpKernelConstruction* context) : NamedKernel(context), dtype_(output_type(0)) {}
  // The graph is gone: a value held for it would only be memory. At worst another graph's next read is a plain one.
  ~ReadKernel() override { ProcessSentAhead().Forget(key_); }

  void Compute(OpKernelContext* context) override {
    Tensor value;
    bool shared = false;
    OP_REQUIRES_OK(context, ReadVariable(context, dtype_, &value, &shared));
    const int64_t token = ProcessSentAhead().Match(key_, client_, value);
    context->set_output(0, token == 0 ? value : Tensor(dtype_, MarkerShape(token)));
  }

 private:
  const tensorflow::DataType dtype_;
};

class SelectKernel : public NamedKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit SelectKernel(OpKernelConstruction* context) : NamedKernel(context) { ProcessStock().AddReader({client_, key_}); }
  ~SelectKernel() override { ProcessStock().RemoveReader({client_, key_}); }

  void Compute(OpKernelContext* context) override {
    const int64_t token = TokenOfMarker(context->input(0));
    if (token == 0) {
      context->set_output(0, context->input(0));
      return;
    }
    Tensor value;
    OP_REQUIRES(context, ProcessStock().Take({client_, key_}, token, &value),
                tensorflow::errors::Internal("tfsched: the value of \"", key_, "\" that was sent ahead is not here."));
    context->set_output(0, value);
  }
};

#define TFSCHED_REGISTER(name, kernel) REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)
TFSCHED_REGISTER("TfschedReadAhead", ReadAheadKernel);
TFSCHED_REGISTER("TfschedStock", StockKernel);
TFSCHED_REGISTER("TfschedArrived", ArrivedKernel);
TFSCHED_REGISTER("TfschedRead", ReadKernel);
TFSCHED_REGISTER("TfschedSelect", SelectKernel);
#undef TFSCHED_REGISTER

}  // namespace
}  // namespace tfsched
