// TfschedUpdatePiece, the kernel: one chunk of an update, into buffers beside the variables'.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/comm_task.h"
#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/inner_update.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/ops/barrier/part_update.h"
#include "cc/ops/shape_attr.h"
#include "cc/ops/transfers/chunks.h"
#include "cc/transport/barrier.h"
#include "cc/transport/held_tensor.h"
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

// More chunks than any tensor is cut into: they are at least 2 KiB each.
constexpr int kMostPieces = 1 << 20;

class PieceKernel : public OpKernel {
 public:
  explicit PieceKernel(OpKernelConstruction* context) : OpKernel(context), dtype_(output_type(0)) {
    std::string node;
    OP_REQUIRES_OK(context, context->GetAttr("node", &node));
    tensorflow::DataTypeVector types;
    OP_REQUIRES_OK(context, context->GetAttr("Targs", &types));
    OP_REQUIRES_OK(context, update_.Make(context, node, types));
    OP_REQUIRES_OK(context, context->GetAttr("gradient", &gradient_));
    OP_REQUIRES_OK(context, ShapeAttr(context, &shape_));
    OP_REQUIRES_OK(context, context->GetAttr("piece", &piece_));
    OP_REQUIRES_OK(context, context->GetAttr("pieces", &pieces_));
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("update", &name_));
    OP_REQUIRES_OK(context, context->GetAttr("keys", &keys_));
    OP_REQUIRES_OK(context, ReadTransfers(context));
    OP_REQUIRES(context,
                gradient_ < update_.inputs() && types[gradient_] == dtype_ && piece_ < pieces_ && pieces_ <= kMostPieces &&
                    keys_.size() == static_cast<size_t>(num_outputs()) && infos_.size() == keys_.size(),
                tensorflow::errors::Internal("tfsched: the attributes of ", name(), " contradict each other."));
  }

  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    OP_REQUIRES_OK(context, TokenOf(context, num_inputs() - 1, &token));
    OP_REQUIRES_OK(context, CheckHandles(context, update_.inputs()));
    const std::shared_ptr<PieceUpdate> update = ProcessPieceUpdates().Get(token, name_);
    bool first = false;
    const PieceUpdate::Plan* plan = update->AddChunk(piece_, pieces_, OpaqueOf(context->input(gradient_)), [&] {
      first = true;
      return Decide(context);
    });
    if (first) OP_REQUIRES_OK(context, DropWithPart(context, token));
    const auto* buffers = plan == nullptr ? nullptr : static_cast<const UpdateBuffers*>(plan->buffers.get());
    OP_REQUIRES(context, plan != nullptr && Fits(context, *plan, buffers),
                tensorflow::errors::InvalidArgument("tfsched: ", name(), " is no chunk of the update \"", name_,
                                                    "\" that another chunk of token ", token, " has begun."));
    if (plan->by_chunks && !Run(context, *buffers)) update->Break();
    const Chunks cut = CutOf();
    for (size_t reader = 0; reader < keys_.size(); ++reader) {
      if (plan->ahead[reader]) {  // also what is not right: it will not be published, so nobody is told that he has it
        context->set_output(
            reader, ChunkOf<TaggedBuffer>(buffers->after[0], cut.begin(piece_), cut.begin(piece_ + 1), infos_[reader]));
      } else {
        context->set_output(reader, Tensor(dtype_, piece_ == 0 ? MarkerShape(token) : TensorShape({0})));
      }
    }
    SweepSentAhead();
  }

 private:
  absl::Status ReadTransfers(OpKernelConstruction* context) {
    TransferInfo info;
    std::vector<std::string> names, receivers;
    std::vector<int> ranks, counts;
    TF_RETURN_IF_ERROR(context->GetAttr("transfers", &names));
    TF_RETURN_IF_ERROR(context->GetAttr("receivers", &receivers));
    TF_RETURN_IF_ERROR(context->GetAttr("ranks", &ranks));
    TF_RETURN_IF_ERROR(context->GetAttr("counts", &counts));
    TF_RETURN_IF_ERROR(context->GetAttr("policy", &info.policy));
    TF_RETURN_IF_ERROR(context->GetAttr("credit_bytes", &info.credit_bytes));
    for (size_t i = 0; i < std::min({names.size(), receivers.size(), ranks.size(), counts.size()}); ++i) {
      info.name = names[i] + "#" + std::to_string(piece_) + "/" + std::to_string(pieces_);
      info.receiver = receivers[i];
      info.rank = ranks[i];
      info.count = counts[i];
      infos_.push_back(std::make_shared<const TransferInfo>(info));
    }
    return absl::OkStatus();
  }

  Chunks CutOf() const { return Chunks(shape_.num_elements(), tensorflow::DataTypeSize(dtype_), pieces_, sizes_); }

  // Takes the values from which all chunks are made, and buffers for those that they make. Whole, if that cannot be: also
  // where there is no memory for them.
  PieceUpdate::Plan Decide(OpKernelContext* context) const {
    PieceUpdate::Plan plan;
    plan.ahead.assign(keys_.size(), false);
    auto buffers = std::make_shared<UpdateBuffers>();
    if (!CutOf().possible() || !buffers->FindVariables(context, update_.inputs()).ok()) return plan;
    plan.memory = ReserveBuffers(*buffers);
    if (!plan.memory) return plan;
    SentAhead::Freed freed;
    std::vector<bool> ahead(keys_.size(), false);
    const auto begin = [&](const Tensor& before) {
      for (size_t reader = 0; reader < keys_.size(); ++reader) {
        ahead[reader] = ProcessSentAhead().Worthwhile(keys_[reader]) &&
                        ProcessSentAhead().Began(keys_[reader], buffers->variables[0].get(), Hold(before), &freed);
      }
    };
    if (!buffers->Take(context, dtype_, shape_, begin).ok()) {
      plan.memory = MemoryBudget::Reservation();
      return plan;
    }
    plan.by_chunks = true;
    plan.ahead = std::move(ahead);
    plan.buffers = std::move(buffers);
    return plan;
  }

  // Drops the update when the background function's part on this device ends without having made it. The part has a manager
  // of its own, which is cancelled or destroyed then. Nobody else says that it is over where the task that began it is lost.
  absl::Status DropWithPart(OpKernelContext* context, int64_t token) const {
    const auto drop = [token, name = name_] { ProcessPieceUpdates().Take(token, name); };
    if (CancelHook(context).Register(drop)) return absl::OkStatus();
    drop();
    return tensorflow::errors::Cancelled("tfsched: the background update was cancelled.");
  }

  // For the new values; and for the old ones, where another client's update may have made the variable a new one meanwhile.
  MemoryBudget::Reservation ReserveBuffers(const UpdateBuffers& buffers) const {
    const int64_t value_bytes = shape_.num_elements() * tensorflow::DataTypeSize(dtype_);
    int64_t bytes = 0;
    for (const auto& variable : buffers.variables) {
      ProcessSentAhead().AddVariable(variable.get(), value_bytes);
      bytes += ProcessSentAhead().IsShared(variable.get()) ? 2 * value_bytes : value_bytes;
    }
    return ProcessMemoryBudget().Reserve(bytes);
  }

  // Whether the update that the first chunk has begun is this one's, too.
  bool Fits(OpKernelContext* context, const PieceUpdate::Plan& plan, const UpdateBuffers* buffers) const {
    if (plan.ahead.size() != keys_.size()) return false;
    return !plan.by_chunks || AreParallel(context, update_.inputs(), dtype_, shape_, *buffers);
  }

  // Runs the update on this chunk of everything: false if that cannot be done.
  bool Run(OpKernelContext* context, const UpdateBuffers& buffers) const {
    std::vector<Tensor*> inputs;
    for (int i = 0; i < update_.inputs(); ++i) inputs.push_back(const_cast<Tensor*>(&context->input(i)));
    const Chunks cut = CutOf();
    const int64_t begin = cut.begin(piece_), end = cut.begin(piece_ + 1);
    if (inputs[gradient_]->shape() != TensorShape({end - begin})) return false;
    return RunOnPart(context, update_, inputs, buffers, begin, end);
  }

  InnerUpdate update_;
  const tensorflow::DataType dtype_;
  int gradient_ = 0;
  TensorShape shape_;
  int piece_ = 0;
  int pieces_ = 0;
  std::vector<int64_t> sizes_;  // of all chunks; empty: even
  std::string name_;
  std::vector<std::string> keys_;
  std::vector<std::shared_ptr<const TransferInfo>> infos_;  // by reader
};

REGISTER_KERNEL_BUILDER(Name("TfschedUpdatePiece").Device(tensorflow::DEVICE_CPU), PieceKernel);

}  // namespace
}  // namespace tfsched
