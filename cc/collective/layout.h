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

// Two ways:
//
//   direct     a piece has a segment for each member, its owner, who combines it and gives it to all: two rounds, and
//              2 (W - 1) / W of the tensor's bytes leave each member, the least that any way needs.
//   everybody  all combine the whole piece for themselves, from the others' pieces: one round, half as many messages, and
//              (W - 1) times the tensor's bytes. For two members, for whom that is the least as well, and for tensors so
//              small that messages cost more than bytes.
//
// Pieces and segments begin at multiples of 64 bytes, so that what arrives can be written to its place.
class Layout {
 public:
  // `members` >= 1, `elements` >= 0; `piece_bytes` is raised to what gives each member a segment.
  Layout(int members, int64_t elements, int64_t element_bytes, int64_t piece_bytes, int64_t whole_bytes);

  bool everybody() const { return everybody_; }
  int64_t pieces() const { return pieces_; }
  // Of a piece, what `member` combines; may be empty, at the end of a tensor.
  Range SegmentOf(int64_t piece, int member) const;

 private:
  const int members_;
  const int64_t elements_;
  const int64_t aligned_;  // elements in 64 bytes
  bool everybody_;
  int64_t piece_elements_;
  int64_t pieces_;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_LAYOUT_H_
