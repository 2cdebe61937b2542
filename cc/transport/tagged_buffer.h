// Tensor buffers that carry something besides bytes: a transfer's tag, or the news that the bytes have gone.
#ifndef TFSCHED_CC_TRANSPORT_TAGGED_BUFFER_H_
#define TFSCHED_CC_TRANSPORT_TAGGED_BUFFER_H_

#include <functional>
#include <memory>
#include <utility>

#include "cc/core/comm_task.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfsched {

// Another view of a buffer's bytes, of all or of some. Keeps the buffer alive and says that it does not own the memory, so
// no kernel ever writes into it in place.
class BufferView : public tensorflow::TensorBuffer {
 public:
  explicit BufferView(tensorflow::TensorBuffer* base) : BufferView(base, 0, base->size()) {}
  BufferView(tensorflow::TensorBuffer* base, size_t offset_bytes, size_t size_bytes)
      : TensorBuffer(static_cast<char*>(base->data()) + offset_bytes), base_(base), size_bytes_(size_bytes) {
    base_->Ref();
  }
  ~BufferView() override { base_->Unref(); }
  size_t size() const override { return size_bytes_; }
  tensorflow::TensorBuffer* root_buffer() override { return this; }
  bool OwnsMemory() const override { return false; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    base_->FillAllocationDescription(proto);
  }
  tensorflow::TensorBuffer* base() const { return base_; }

 private:
  tensorflow::TensorBuffer* const base_;
  const size_t size_bytes_;
};

// What TfschedProxy puts around its input, and TfschedSplit around each piece of it. _Send and the rendezvous pass it on
// untouched, the transport reads it.
class TaggedBuffer : public BufferView {
 public:
  TaggedBuffer(tensorflow::TensorBuffer* base, std::shared_ptr<const TransferInfo> info)
      : BufferView(base), info_(std::move(info)) {}
  TaggedBuffer(tensorflow::TensorBuffer* base, size_t offset_bytes, size_t size_bytes,
               std::shared_ptr<const TransferInfo> info, int64_t turn = 0)
      : BufferView(base, offset_bytes, size_bytes), info_(std::move(info)), turn_(turn) {}
  const std::shared_ptr<const TransferInfo>& info() const { return info_; }
  int64_t turn() const { return turn_; }

 private:
  const std::shared_ptr<const TransferInfo> info_;
  const int64_t turn_ = 0;
};

// gRPC shares the buffers of large tensors and drops its reference when the bytes are written: `released` is called then.
class ReleaseBuffer : public BufferView {
 public:
  ReleaseBuffer(tensorflow::TensorBuffer* base, std::function<void()> released)
      : BufferView(base), released_(std::move(released)) {}
  ~ReleaseBuffer() override { released_(); }

 private:
  const std::function<void()> released_;
};

// `value` with its buffer seen through a new `View(buffer, args...)`. `value` must have a buffer.
template <typename View, typename... Args>
tensorflow::Tensor ViewOf(const tensorflow::Tensor& value, tensorflow::TensorBuffer* buffer, Args&&... args) {
  auto* view = new View(buffer, std::forward<Args>(args)...);
  tensorflow::Tensor result(value.dtype(), value.shape(), view);  // takes a reference of its own
  view->Unref();
  return result;
}

inline tensorflow::TensorBuffer* BufferOf(const tensorflow::Tensor& value) {
  return const_cast<tensorflow::TensorBuffer*>(tensorflow::DMAHelper::buffer(&value));
}

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_TAGGED_BUFFER_H_
