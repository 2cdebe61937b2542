// TfschedMerge, the kernel: copies the chunks, as they were cut, one behind the other.
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class MergeKernel : public OpKernel {
 public:
  explicit MergeKernel(OpKernelConstruction* ctx) : OpKernel(ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("shape", &shape_)); }

  void Compute(OpKernelContext* ctx) override {
    OpInputList chunks;
    OP_REQUIRES_OK(ctx, ctx->input_list("chunks", &chunks));
    // TfschedSplit leaves no chunk of a cut tensor empty.
    if (chunks.size() == 1 || chunks[chunks.size() - 1].NumElements() == 0) {
      ctx->set_output(0, chunks[0]);
      return;
    }
    int64_t elements = 0;
    for (const Tensor& chunk : chunks) elements += chunk.NumElements();
    OP_REQUIRES(ctx, elements == shape_.num_elements(),
                tensorflow::errors::InvalidArgument("TfschedMerge ", name(), " got chunks of ", elements,
                                                    " elements for a tensor of shape ", shape_.DebugString(),
                                                    "; give it all outputs of one TfschedSplit of that shape."));
    Tensor* whole = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape_, &whole));
    OP_REQUIRES(ctx, tensorflow::DataTypeCanUseMemcpy(whole->dtype()),
                tensorflow::errors::InvalidArgument("TfschedMerge ", name(), " cannot put together tensors of type ",
                                                    tensorflow::DataTypeString(whole->dtype()), "."));
    char* to = static_cast<char*>(whole->data());
    for (const Tensor& chunk : chunks) {
      std::memcpy(to, chunk.data(), chunk.TotalBytes());
      to += chunk.TotalBytes();
    }
  }

 private:
  TensorShape shape_;
};

REGISTER_KERNEL_BUILDER(Name("TfschedMerge").Device(tensorflow::DEVICE_CPU), MergeKernel);

}  // namespace
}  // namespace tfsched
