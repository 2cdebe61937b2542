// TfschedSplit, the kernel: one tagged view of the input's buffer for each chunk, moves no bytes.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cc/ops/shape_attr.h"
#include "cc/ops/transfers/chunks.h"
#include "cc/ops/transfers/snapshot.h"
#include "cc/ops/transfers/transfer_attrs.h"
#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class SplitKernel : public OpKernel {
 public:
  explicit SplitKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    int64_t chunks = 0;
    TransferInfo info;
    OP_REQUIRES_OK(ctx, ReadTransferAttrs(ctx, &info));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("N", &chunks));
    OP_REQUIRES_OK(ctx, ShapeAttr(ctx, &shape_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copy", &copy_));
    OP_REQUIRES(ctx, chunks <= std::numeric_limits<int>::max() - info.rank,
                tensorflow::errors::InvalidArgument("tfsched: ", name(), " has the rank ", info.rank, " and ", chunks,
                                                    " chunks; ranks go up to ", std::numeric_limits<int>::max(), "."));
    std::vector<int> ranks;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ranks", &ranks));
    OP_REQUIRES(ctx,
                (ranks.empty() || static_cast<int64_t>(ranks.size()) == chunks) &&
                    std::all_of(ranks.begin(), ranks.end(), [](int rank) { return rank >= 0; }),
                tensorflow::errors::InvalidArgument("tfsched: ", name(), " has ", chunks, " chunks and ", ranks.size(),
                                                    " ranks; give each chunk one of 0 or more."));
    const std::string name = info.name;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      info.name = name + "#" + std::to_string(chunk) + "/" + std::to_string(chunks);
      if (!ranks.empty()) info.rank = ranks[chunk];
      infos_.push_back(std::make_shared<const TransferInfo>(info));
      ++info.rank;
    }
  }

  void Compute(OpKernelContext* ctx) override {
    Tensor value = ctx->input(0);
    const int64_t chunks = static_cast<int64_t>(infos_.size());
    const Chunks cut(value.NumElements(), tensorflow::DataTypeSize(value.dtype()), chunks, sizes_);
    const bool flat = HasFlatBytes(value);
    if (flat && copy_) OP_REQUIRES_OK(ctx, TakeSnapshot(ctx, &value));
    if (!flat || chunks == 1 || !cut.possible() || value.shape() != shape_) {
      // Whole. A variable may have been given another shape than it was declared with.
      ctx->set_output(0, flat ? ViewOf<TaggedBuffer>(value, BufferOf(value), infos_[0]) : value);
      for (int64_t chunk = 1; chunk < chunks; ++chunk) ctx->set_output(chunk, Tensor(value.dtype(), TensorShape({0})));
      return;
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      ctx->set_output(chunk, ChunkOf<TaggedBuffer>(value, cut.begin(chunk), cut.begin(chunk + 1), infos_[chunk]));
    }
  }

  bool IsExpensive() override { return copy_; }

 private:
  std::vector<std::shared_ptr<const TransferInfo>> infos_;
  TensorShape shape_;
  std::vector<int64_t> sizes_;  // empty: even
  bool copy_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfschedSplit").Device(tensorflow::DEVICE_CPU), SplitKernel);

}  // namespace
}  // namespace tfsched
