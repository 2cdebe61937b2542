// TfschedSplit, the kernel: one tagged view of the input's buffer for each chunk, moves no bytes.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cc/ops/snapshot.h"
#include "cc/ops/transfer_attrs.h"
#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorBuffer;
using tensorflow::TensorShape;

// Borders between chunks are multiples of it. A cache line, what allocators align to, and a multiple of the size of every
// element, for those are powers of two up to 16.
constexpr int64_t kBlockBytes = 64;

// Elements [begin, end) of `value` as a flat tensor that shares its bytes.
Tensor ChunkOf(const Tensor& value, int64_t begin, int64_t end, int64_t element_bytes,
               const std::shared_ptr<const TransferInfo>& info) {
  auto* view = new TaggedBuffer(BufferOf(value), begin * element_bytes, (end - begin) * element_bytes, info);
  Tensor chunk(value.dtype(), TensorShape({end - begin}), view);  // takes a reference of its own
  view->Unref();
  return chunk;
}

class SplitKernel : public OpKernel {
 public:
  explicit SplitKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    int64_t chunks = 0;
    TransferInfo info;
    OP_REQUIRES_OK(ctx, ReadTransferAttrs(ctx, &info));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("N", &chunks));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shape", &shape_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copy", &copy_));
    const std::string name = info.name;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      info.name = name + "#" + std::to_string(chunk) + "/" + std::to_string(chunks);
      infos_.push_back(std::make_shared<const TransferInfo>(info));
      ++info.rank;
    }
  }

  void Compute(OpKernelContext* ctx) override {
    Tensor value = ctx->input(0);
    const int64_t chunks = static_cast<int64_t>(infos_.size());
    const int64_t element_bytes = tensorflow::DataTypeSize(value.dtype());
    const bool flat = HasFlatBytes(value) && element_bytes > 0 && kBlockBytes % element_bytes == 0;
    if (flat && copy_) OP_REQUIRES_OK(ctx, TakeSnapshot(ctx, &value));
    const int64_t block = flat ? kBlockBytes / element_bytes : 1;  // in elements
    const int64_t elements = value.NumElements();
    const int64_t blocks = (elements + block - 1) / block;
    if (!flat || chunks == 1 || blocks < chunks || value.shape() != shape_) {
      // Whole. A variable may have been given another shape than it was declared with.
      ctx->set_output(0, flat ? ViewOf<TaggedBuffer>(value, BufferOf(value), infos_[0]) : value);
      for (int64_t chunk = 1; chunk < chunks; ++chunk) ctx->set_output(chunk, Tensor(value.dtype(), TensorShape({0})));
      return;
    }
    int64_t begin = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t end = std::min(elements, (chunk + 1) * blocks / chunks * block);
      ctx->set_output(chunk, ChunkOf(value, begin, end, element_bytes, infos_[chunk]));
      begin = end;
    }
  }

  bool IsExpensive() override { return copy_; }

 private:
  std::vector<std::shared_ptr<const TransferInfo>> infos_;
  TensorShape shape_;
  bool copy_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfschedSplit").Device(tensorflow::DEVICE_CPU), SplitKernel);

}  // namespace
}  // namespace tfsched
