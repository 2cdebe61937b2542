// How one tensor is cut for an all-reduce: into pieces, each with a segment for every member.
#ifndef TFSCHED_CC_COLLECTIVE_LAYOUT_H_
#define TFSCHED_CC_COLLECTIVE_LAYOUT_H_

#include <cstdint>
#include <vector>

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
  // `members` >= 1, `elements` >= 0; `piece_bytes` is raised to what gives each member a segment. `piece_elements`, if there
  // are any, are how many elements each piece has, and count instead; see Fits(). Else all pieces but the last are equal.
  Layout(int members, int64_t elements, int64_t element_bytes, int64_t piece_bytes,
         const std::vector<int64_t>& piece_elements = {});

  // Whether so many elements can be cut into these pieces: none is empty, and all begin at multiples of 64 bytes.
  static bool Fits(int64_t elements, int64_t element_bytes, const std::vector<int64_t>& piece_elements);

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
  std::vector<int64_t> ends_;  // of the pieces, where they are not all alike
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_LAYOUT_H_
