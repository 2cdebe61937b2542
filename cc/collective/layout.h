// How one tensor is cut for an all-reduce: into pieces, each with a segment for every member.
#ifndef TFSCHED_CC_COLLECTIVE_LAYOUT_H_
#define TFSCHED_CC_COLLECTIVE_LAYOUT_H_

#include <cstdint>

namespace tfsched {

// Elements from `begin` to before `end`.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range& other) const { return begin == other.begin && end == other.end; }
};

// Pieces and segments begin at multiples of 64 bytes, so that what arrives can be written to its place.
class Layout {
 public:
  // `members` >= 1, `elements` >= 0; `piece_bytes` is raised to what gives each member a segment.
  Layout(int members, int64_t elements, int64_t element_bytes, int64_t piece_bytes);

  int members() const { return members_; }
  int64_t elements() const { return elements_; }
  int64_t pieces() const { return pieces_; }
  Range PieceOf(int64_t piece) const;
  // Of a piece, the part that belongs to `member`; may be empty, at the end of a tensor.
  Range SegmentOf(int64_t piece, int member) const;

 private:
  int members_;
  int64_t elements_;
  int64_t aligned_;  // elements in 64 bytes
  int64_t piece_elements_;
  int64_t pieces_;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_LAYOUT_H_
