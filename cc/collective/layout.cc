// How one tensor is cut for an all-reduce; see layout.h.
#include "cc/collective/layout.h"

#include <algorithm>

namespace tfsched {
namespace {

constexpr int64_t kAlignedBytes = 64;

}  // namespace

Layout::Layout(int members, int64_t elements, int64_t element_bytes, int64_t piece_bytes)
    : members_(members), elements_(elements), aligned_(kAlignedBytes / element_bytes) {
  const int64_t least = aligned_ * members;
  piece_elements_ = std::max(least, piece_bytes / element_bytes / least * least);
  pieces_ = (elements + piece_elements_ - 1) / piece_elements_;
}

Range Layout::PieceOf(int64_t piece) const {
  const int64_t begin = piece * piece_elements_;
  return {begin, std::min(begin + piece_elements_, elements_)};
}

Range Layout::SegmentOf(int64_t piece, int member) const {
  const auto [begin, end] = PieceOf(piece);
  const int64_t size = end - begin;
  // The last of a tensor's pieces is shorter; the others are cut evenly.
  const auto cut = [&](int number) { return number == members_ ? size : size * number / members_ / aligned_ * aligned_; };
  return {begin + cut(member), begin + cut(member + 1)};
}

}  // namespace tfsched
