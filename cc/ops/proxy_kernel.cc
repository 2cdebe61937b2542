// TfschedProxy, the kernel: wraps the buffer, moves no bytes.
#include <cstring>
#include <memory>
#include <string>

#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ProxyKernel : public OpKernel {
 public:
  explicit ProxyKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    auto info = std::make_shared<TransferInfo>();
    int64_t rank = 0, count = 0, credit_bytes = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transfer", &info->name));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("receiver", &info->receiver));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("policy", &info->policy));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rank", &rank));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("count", &count));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("credit_bytes", &credit_bytes));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copy", &copy_));
    info->rank = static_cast<int>(rank);
    info->count = static_cast<int>(count);
    info->credit_bytes = credit_bytes;
    info_ = std::move(info);
  }

  void Compute(OpKernelContext* ctx) override {
    Tensor value = ctx->input(0);
    // Strings and resources have no flat bytes, and an empty tensor has no buffer: nothing to order.
    if (!value.IsInitialized() || !tensorflow::DMAHelper::CanUseDMA(&value) || BufferOf(value) == nullptr) {
      ctx->set_output(0, value);
      return;
    }
    if (copy_) {
      Tensor snapshot;
      OP_REQUIRES_OK(ctx, ctx->allocate_temp(value.dtype(), value.shape(), &snapshot));
      std::memcpy(snapshot.data(), value.data(), value.TotalBytes());
      value = snapshot;
    }
    ctx->set_output(0, ViewOf<TaggedBuffer>(value, BufferOf(value), info_));
  }

  bool IsExpensive() override { return copy_; }

 private:
  std::shared_ptr<const TransferInfo> info_;
  bool copy_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfschedProxy").Device(tensorflow::DEVICE_CPU), ProxyKernel);

}  // namespace
}  // namespace tfsched
