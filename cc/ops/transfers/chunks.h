// Where the borders between a tensor's chunks are: the sender cuts there, and what works on a chunk has to know.
#ifndef TFSCHED_CC_OPS_TRANSFERS_CHUNKS_H_
#define TFSCHED_CC_OPS_TRANSFERS_CHUNKS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/core/landing.h"
#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfsched {

// Borders between chunks are multiples of it, so that a chunk lies aligned in the whole tensor's memory: what the receiver's
// blocks are aligned to, a cache line, and a multiple of the size of every element, for those are powers of two up to 16.
// BLOCK_BYTES in tfsched/_rules.py is the same number, and chunk_bytes there gives the same borders; a test compares them
// with what the split op does.
constexpr int64_t kBlockBytes = Block::kAlignment;

// How a tensor of so many elements is cut into so many chunks: evenly, or into chunks of `sizes` bytes, if there are any.
class Chunks {
 public:
  Chunks(int64_t elements, int64_t element_bytes, int64_t chunks, const std::vector<int64_t>& sizes = {})
      : elements_(elements),
        block_(element_bytes > 0 && kBlockBytes % element_bytes == 0 ? kBlockBytes / element_bytes : 0),
        blocks_(block_ == 0 ? 0 : (elements + block_ - 1) / block_),
        chunks_(chunks),
        possible_(block_ > 0 && blocks_ >= chunks) {
    if (sizes.empty() || !possible_) return;
    int64_t end_bytes = 0;
    possible_ = static_cast<int64_t>(sizes.size()) == chunks;
    for (const int64_t size : sizes) {
      // The one behind the last begins at the tensor's end, wherever that is.
      possible_ = possible_ && size > 0 && end_bytes % kBlockBytes == 0 && size <= elements * element_bytes - end_bytes;
      if (!possible_) return;
      begins_.push_back(end_bytes / element_bytes);
      end_bytes += size;
    }
    possible_ = end_bytes == elements * element_bytes;
  }
  // Whether it can be cut so; none of the chunks is empty then.
  bool possible() const { return possible_; }
  // The first element of a chunk; of the one behind the last: the number of elements. Only if it is possible.
  int64_t begin(int64_t chunk) const {
    if (!begins_.empty()) return chunk < chunks_ ? begins_[chunk] : elements_;
    return std::min(elements_, chunk * blocks_ / chunks_ * block_);
  }

 private:
  const int64_t elements_;
  const int64_t block_;  // in elements
  const int64_t blocks_;
  const int64_t chunks_;
  bool possible_;
  std::vector<int64_t> begins_;  // where chunks are not even
};

// Elements [begin, end) of `value` as a flat tensor that shares its bytes; `View(buffer, offset, size, args...)` sees them.
template <typename View, typename... Args>
tensorflow::Tensor ChunkOf(const tensorflow::Tensor& value, int64_t begin, int64_t end, Args&&... args) {
  const int64_t element_bytes = tensorflow::DataTypeSize(value.dtype());
  auto* view = new View(BufferOf(value), begin * element_bytes, (end - begin) * element_bytes, std::forward<Args>(args)...);
  tensorflow::Tensor chunk(value.dtype(), tensorflow::TensorShape({end - begin}), view);  // takes a reference of its own
  view->Unref();
  return chunk;
}

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_TRANSFERS_CHUNKS_H_
