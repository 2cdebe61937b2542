// Kernels of the control ops.
#include <string>

#include "cc/transport/runtime.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

void SetScalar(OpKernelContext* ctx, std::string text) {
  Tensor* output = nullptr;
  OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape(), &output));
  output->scalar<tensorflow::tstring>()() = text;
}

class StatsKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override { SetScalar(ctx, StatsJson()); }
};

class TraceKernel : public OpKernel {
 public:
  explicit TraceKernel(OpKernelConstruction* ctx) : OpKernel(ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("clear", &clear_)); }
  void Compute(OpKernelContext* ctx) override {
    SetScalar(ctx, TraceJson());
    if (clear_) ProcessDispatcher().scheduler().ClearTrace();
  }

 private:
  bool clear_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfschedStats").Device(tensorflow::DEVICE_CPU), StatsKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedTrace").Device(tensorflow::DEVICE_CPU), TraceKernel);

}  // namespace
}  // namespace tfsched
