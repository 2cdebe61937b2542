// Tensor buffers of what was received: a chunk that knows where it came from and where it lies, and a block of chunks.
#ifndef TFSCHED_CC_TRANSPORT_RECEIVED_BUFFER_H_
#define TFSCHED_CC_TRANSPORT_RECEIVED_BUFFER_H_

#include <memory>
#include <string>
#include <utility>

#include "cc/core/landing.h"
#include "cc/transport/tagged_buffer.h"

namespace tfsched {

// What the receiver puts around a tensor that another task's scheduler has sent. Kernels may write into it where they might
// have written into what it shows.
class ReceivedBuffer : public BufferView {
 public:
  ReceivedBuffer(tensorflow::TensorBuffer* base, std::string key, Landing landing)
      : BufferView(base), key_(std::move(key)), landing_(std::move(landing)) {}
  bool OwnsMemory() const override { return base()->RefCountIsOne() && base()->OwnsMemory(); }
  // Of the rendezvous: the same in every step of a graph.
  const std::string& key() const { return key_; }
  const Landing& landing() const { return landing_; }

 private:
  const std::string key_;
  const Landing landing_;
};

// A whole block. The chunks that lie in it may still be seen by others, so nobody writes into it.
class BlockBuffer : public tensorflow::TensorBuffer {
 public:
  explicit BlockBuffer(std::shared_ptr<Block> block) : TensorBuffer(block->data()), block_(std::move(block)) {}
  size_t size() const override { return static_cast<size_t>(block_->bytes()); }
  tensorflow::TensorBuffer* root_buffer() override { return this; }
  bool OwnsMemory() const override { return false; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    proto->set_requested_bytes(block_->bytes());
    proto->set_allocator_name("tfsched");
  }

 private:
  const std::shared_ptr<Block> block_;
};

// Created at first use, never destroyed.
Landings& ProcessLandings();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_RECEIVED_BUFFER_H_
