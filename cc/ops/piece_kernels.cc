// TfschedUpdatePiece, TfschedUpdateFromPieces, the kernels.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/comm_task.h"
#include "cc/ops/chunks.h"
#include "cc/ops/inner_update.h"
#include "cc/transport/piece_updates.h"
#include "cc/transport/read_ahead.h"
#include "cc/transport/tagged_buffer.h"
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
using tensorflow::TensorShape;
using tensorflow::Var;

// A part of a buffer that is its user's alone, so that a kernel writes into it in place.
class OwnPart : public BufferView {
 public:
  using BufferView::BufferView;
  bool OwnsMemory() const override { return true; }
};

class PieceKernel : public OpKernel {
 public:
  explicit PieceKernel(OpKernelConstruction* context) : OpKernel(context), dtype_(output_type(0)) {
    std::string node;
    OP_REQUIRES_OK(context, context->GetAttr("node", &node));
    OP_REQUIRES_OK(context, update_.Make(context, node));
    OP_REQUIRES_OK(context, context->GetAttr("gradient", &gradient_));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
    OP_REQUIRES_OK(context, context->GetAttr("piece", &piece_));
    OP_REQUIRES_OK(context, context->GetAttr("pieces", &pieces_));
    OP_REQUIRES_OK(context, context->GetAttr("update", &name_));
    OP_REQUIRES_OK(context, context->GetAttr("keys", &keys_));
    OP_REQUIRES_OK(context, ReadTransfers(context));
    OP_REQUIRES(context,
                update_.inputs() == num_inputs() - 1 && gradient_ < update_.inputs() && piece_ < pieces_ &&
                    keys_.size() == static_cast<size_t>(num_outputs()) && infos_.size() == keys_.size(),
                tensorflow::errors::Internal("tfsched: the attributes of ", name(), " contradict each other."));
  }

  void Compute(OpKernelContext* context) override {
    const int64_t token = context->input(num_inputs() - 1).scalar<int64_t>()();
    const std::shared_ptr<PieceUpdate> update = ProcessPieceUpdates().Get(token, name_);
    {
      std::lock_guard<std::mutex> lock(update->mu);
      if (!update->prepared) Prepare(context, update.get());
      update->gradients[piece_] = context->input(gradient_);
    }
    if (!update->whole && !Run(context, *update)) {
      std::lock_guard<std::mutex> lock(update->mu);
      update->broken = true;
    }
    const Chunks cut = CutOf();
    for (size_t reader = 0; reader < keys_.size(); ++reader) {
      if (update->ahead[reader]) {  // also what is not right: it will not be published, so nobody is told that he has it
        context->set_output(
            reader, ChunkOf<TaggedBuffer>(update->after[0], cut.begin(piece_), cut.begin(piece_ + 1), infos_[reader]));
      } else {
        context->set_output(reader, Tensor(dtype_, piece_ == 0 ? MarkerShape(token) : TensorShape({0})));
      }
    }
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
      info.rank = ranks[i] + piece_;
      info.count = counts[i];
      infos_.push_back(std::make_shared<const TransferInfo>(info));
    }
    return absl::OkStatus();
  }

  Chunks CutOf() const { return Chunks(shape_.num_elements(), tensorflow::DataTypeSize(dtype_), pieces_); }

  // Takes the values from which all chunks are made, and buffers for those that they make.
  void Prepare(OpKernelContext* context, PieceUpdate* update) const {
    update->prepared = true;
    update->gradients.resize(pieces_);
    update->ahead.assign(keys_.size(), false);
    update->whole = !CutOf().possible() || !TakeVariables(context, update).ok();
    if (update->whole) return;
    for (size_t reader = 0; reader < keys_.size(); ++reader) {
      update->ahead[reader] = ProcessSentAhead().Worthwhile(keys_[reader]);
    }
  }

  absl::Status TakeVariables(OpKernelContext* context, PieceUpdate* update) const {
    for (int i = 0; i < update_.inputs(); ++i) {
      if (context->input_dtype(i) != tensorflow::DT_RESOURCE) continue;
      tensorflow::core::RefCountPtr<Var> variable;
      TF_RETURN_IF_ERROR(LookupResource(context, tensorflow::HandleFromInput(context, i), &variable));
      Tensor before, after;
      {
        tensorflow::tf_shared_lock lock(*variable->mu());
        before = *variable->tensor();
        if (!before.IsInitialized() || before.dtype() != dtype_ || before.shape() != shape_ ||
            variable->copy_on_read_mode.load()) {
          return tensorflow::errors::FailedPrecondition("not as expected");
        }
      }
      TF_RETURN_IF_ERROR(context->allocate_temp(dtype_, shape_, &after));
      update->variables.push_back(std::move(variable));
      update->before.push_back(before);
      update->after.push_back(after);
    }
    return absl::OkStatus();
  }

  // Runs the update on this chunk of everything: false if that cannot be done.
  bool Run(OpKernelContext* context, const PieceUpdate& update) const {
    const Chunks cut = CutOf();
    const int64_t begin = cut.begin(piece_), end = cut.begin(piece_ + 1);
    if (context->input(gradient_).shape() != TensorShape({end - begin})) return false;
    const size_t offset = begin * tensorflow::DataTypeSize(dtype_), size = (end - begin) * tensorflow::DataTypeSize(dtype_);
    std::vector<Tensor> handles;
    std::vector<Var*> parts;  // alive as long as their handles
    handles.reserve(update_.inputs());
    std::vector<Tensor*> inputs;
    for (int i = 0; i < update_.inputs(); ++i) {
      inputs.push_back(const_cast<Tensor*>(&context->input(i)));
      if (context->input_dtype(i) != tensorflow::DT_RESOURCE) continue;
      const size_t number = parts.size();
      std::memcpy(static_cast<char*>(update.after[number].data()) + offset,
                  static_cast<const char*>(update.before[number].data()) + offset, size);
      parts.push_back(new Var(dtype_));
      *parts.back()->tensor() = ChunkOf<OwnPart>(update.after[number], begin, end);
      parts.back()->is_initialized = true;
      handles.emplace_back(tensorflow::DT_RESOURCE, TensorShape());
      handles.back().scalar<tensorflow::ResourceHandle>()() =
          tensorflow::ResourceHandle::MakeRefCountingHandle(parts.back(), context->device()->name());
      inputs.back() = &handles.back();
    }
    if (!update_.Run(context, inputs).ok()) return false;
    for (size_t number = 0; number < parts.size(); ++number) {
      const Tensor& part = *parts[number]->tensor();
      char* to = static_cast<char*>(update.after[number].data()) + offset;
      if (part.TotalBytes() != size) return false;
      if (part.data() != to) std::memcpy(to, part.data(), size);  // an assignment keeps the buffer of what it is given
    }
    return true;
  }

  InnerUpdate update_;
  const tensorflow::DataType dtype_;
  int gradient_ = 0;
  TensorShape shape_;
  int piece_ = 0;
  int pieces_ = 0;
  std::string name_;
  std::vector<std::string> keys_;
  std::vector<std::shared_ptr<const TransferInfo>> infos_;  // by reader
};

class FromPiecesKernel : public OpKernel {
 public:
  explicit FromPiecesKernel(OpKernelConstruction* context) : OpKernel(context) {
    std::string node;
    int after = 0;
    OP_REQUIRES_OK(context, context->GetAttr("node", &node));
    OP_REQUIRES_OK(context, update_.Make(context, node));
    OP_REQUIRES_OK(context, context->GetAttr("gradient", &gradient_));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
    OP_REQUIRES_OK(context, context->GetAttr("update", &name_));
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("keys", &keys_));
    OP_REQUIRES_OK(context, context->GetAttr("N", &after));
    token_ = num_inputs() - 1 - after;
    OP_REQUIRES(context, update_.inputs() == token_ + 1 && gradient_ <= token_,
                tensorflow::errors::Internal("tfsched: the attributes of ", name(), " contradict each other."));
  }

  void Compute(OpKernelContext* context) override {
    const int64_t token = context->input(token_).scalar<int64_t>()();
    const std::shared_ptr<PieceUpdate> update = ProcessPieceUpdates().Take(token, name_);
    if (update == nullptr) {
      return SetErrorText(context, TextOf(tensorflow::errors::Aborted("tfsched: the update's step is over."), name()));
    }
    const std::string earlier = FirstError(context, token_ + 1, num_inputs());
    if (!earlier.empty()) return SetErrorText(context, earlier);
    const bool published = !update->whole && !update->broken && update->Publish();
    const absl::Status status = published ? absl::OkStatus() : RunWhole(context, *update);
    ProcessPieceUpdates().Count(published);
    for (size_t reader = 0; reader < keys_.size(); ++reader) {
      // Said also where something else has been written: the next read sees that it is not the same value.
      if (update->ahead[reader]) ProcessSentAhead().Sent(keys_[reader], client_, token, update->after[0]);
    }
    SetErrorText(context, TextOf(status, name()));
  }

 private:
  absl::Status RunWhole(OpKernelContext* context, const PieceUpdate& update) const {
    Tensor gradient;
    TF_RETURN_IF_ERROR(Merge(context, update.gradients, &gradient));
    std::vector<Tensor*> inputs;
    for (int i = 0; i < token_; ++i) inputs.push_back(const_cast<Tensor*>(&context->input(i)));
    inputs.insert(inputs.begin() + gradient_, &gradient);
    return update_.Run(context, inputs);
  }

  // As TfschedMerge does. A sender that did not cut has sent the whole as the first chunk.
  absl::Status Merge(OpKernelContext* context, const std::vector<Tensor>& chunks, Tensor* whole) const {
    if (chunks.back().NumElements() == 0) {
      *whole = chunks.front();
      return absl::OkStatus();
    }
    int64_t elements = 0;
    for (const Tensor& chunk : chunks) elements += chunk.NumElements();
    if (elements != shape_.num_elements()) {
      return tensorflow::errors::InvalidArgument(name(), " got chunks of ", elements, " elements for a gradient of shape ",
                                                 shape_.DebugString(), ".");
    }
    TF_RETURN_IF_ERROR(context->allocate_temp(chunks.front().dtype(), shape_, whole));
    char* to = static_cast<char*>(whole->data());
    for (const Tensor& chunk : chunks) {
      std::memcpy(to, chunk.data(), chunk.TotalBytes());
      to += chunk.TotalBytes();
    }
    return absl::OkStatus();
  }

  InnerUpdate update_;
  int gradient_ = 0;
  int token_ = 0;  // which input is the token
  TensorShape shape_;
  std::string name_;
  std::string client_;
  std::vector<std::string> keys_;
};

REGISTER_KERNEL_BUILDER(Name("TfschedUpdatePiece").Device(tensorflow::DEVICE_CPU), PieceKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedUpdateFromPieces").Device(tensorflow::DEVICE_CPU), FromPiecesKernel);

}  // namespace
}  // namespace tfsched
