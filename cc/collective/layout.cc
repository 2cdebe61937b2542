// How one tensor is cut for an all-reduce; see layout.h.
#include "cc/collective/layout.h"

#include <algorithm>

namespace tfsched {
namespace {

constexpr int64_t kAlignedBytes = 64;

int64_t Quotient(int64_t value, int64_t by) { return (value + by - 1) / by; }  // rounded up

}  // namespace

Layout::Layout(int members, int64_t elements, int64_t element_bytes, int64_t piece_bytes,
               const std::vector<int64_t>& piece_elements)
    : members_(members), elements_(elements), aligned_(kAlignedBytes / element_bytes) {
  const int64_t least = aligned_ * members;
  const int64_t most = std::max(least, piece_bytes / element_bytes / least * least);
  // All about as large: what is left over at the end would cost as many messages as a whole piece.
  const int64_t even = Quotient(elements, std::max<int64_t>(Quotient(elements, most), 1));
  piece_elements_ = std::max<int64_t>(Quotient(even, least), 1) * least;
  pieces_ = Quotient(elements, piece_elements_);
  if (piece_elements.empty() || !Fits(elements, element_bytes, piece_elements)) return;
  pieces_ = static_cast<int64_t>(piece_elements.size());
  for (const int64_t size : piece_elements) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + size);
}

bool Layout::Fits(int64_t elements, int64_t element_bytes, const std::vector<int64_t>& piece_elements) {
  int64_t end = 0;
  for (const int64_t size : piece_elements) {
    if (size <= 0 || size > elements - end || end * element_bytes % kAlignedBytes != 0) return false;
    end += size;
  }
  return end == elements;
}

Range Layout::PieceOf(int64_t piece) const {
  if (!ends_.empty()) return {piece == 0 ? 0 : ends_[piece - 1], ends_[piece]};
  const int64_t begin = piece * piece_elements_;
  return {begin, std::min(begin + piece_elements_, elements_)};
}

Range Layout::SegmentOf(int64_t piece, int member) const {
  const auto [begin, end] = PieceOf(piece);
  const int64_t size = end - begin;
  // The last of a tensor's pieces may be shorter; the others are cut evenly.
  const auto cut = [&](int number) { return number == members_ ? size : size * number / members_ / aligned_ * aligned_; };
  return {begin + cut(member), begin + cut(member + 1)};
}

}  // namespace tfsched
