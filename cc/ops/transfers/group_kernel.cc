// TfschedGroup, the kernel: copies its inputs' shapes and bytes behind one another.
#include <cstring>

#include "cc/ops/transfers/grouped.h"
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

class GroupKernel : public OpKernel {
 public:
  explicit GroupKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    for (const tensorflow::DataType dtype : input_types()) {
      OP_REQUIRES(ctx, tensorflow::DataTypeCanUseMemcpy(dtype),
                  tensorflow::errors::InvalidArgument("tfsched: ", name(), " cannot join tensors of type ",
                                                      tensorflow::DataTypeString(dtype), "; give it numbers."));
    }
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList inputs;
    OP_REQUIRES_OK(ctx, ctx->input_list("inputs", &inputs));
    int64_t header = 0, bytes = 0;
    for (const Tensor& input : inputs) {
      header += (1 + input.dims()) * static_cast<int64_t>(sizeof(int64_t));
      bytes += InWholeBlocks(static_cast<int64_t>(input.TotalBytes()));
    }
    Tensor* joined = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({InWholeBlocks(header) + bytes}), &joined));
    // What is between the tensors is sent as well, and is no business of others.
    char* const begin = static_cast<char*>(joined->data());
    std::memset(begin + header, 0, InWholeBlocks(header) - header);
    char* number = begin;
    char* to = begin + InWholeBlocks(header);
    for (const Tensor& input : inputs) {
      const int64_t rank = input.dims();
      number = Put(rank, number);
      for (int64_t dim = 0; dim < rank; ++dim) number = Put(input.dim_size(dim), number);
      const int64_t size = static_cast<int64_t>(input.TotalBytes());
      if (size > 0) std::memcpy(to, input.data(), size);
      std::memset(to + size, 0, InWholeBlocks(size) - size);
      to += InWholeBlocks(size);
    }
  }

 private:
  static char* Put(int64_t value, char* to) {
    std::memcpy(to, &value, sizeof(value));
    return to + sizeof(value);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfschedGroup").Device(tensorflow::DEVICE_CPU), GroupKernel);

}  // namespace
}  // namespace tfsched
