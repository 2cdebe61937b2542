// One member's part of the all-reduce of one tensor: what to send when, and what to make of what arrives.
#ifndef TFSCHED_CC_COLLECTIVE_EXCHANGE_H_
#define TFSCHED_CC_COLLECTIVE_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/collective/elements.h"
#include "cc/collective/layout.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// The same on all members but for `me`.
struct ExchangeSpec {
  ElementType type = ElementType::kFloat32;
  Reduction reduction = Reduction::kAdd;
  bool mean = false;  // divide by the number of members in the end
  int members = 1;
  int me = 0;
  int64_t elements = 0;
  int64_t piece_bytes = 1 << 19;
  int64_t whole_bytes = 0;  // a tensor of at most so many goes whole to everybody
};

// What goes from one member to another.
struct Message {
  // A member's own values of a segment, for whoever combines them; or a segment that its owner has combined.
  enum class Kind { kContribution, kResult };
  Kind kind = Kind::kContribution;
  int peer = 0;  // where it goes, or where it comes from
  int64_t piece = 0;
  Range range;
};

// Knows no network: its owner moves the messages, in any order and on any threads. Combines in the order of the members, so
// all get the same bits, whatever comes first. Input and output have to stay until the owner has sent what it was told to.
class Exchange {
 public:
  Exchange(const ExchangeSpec& spec, const void* input, void* output);

  // What will arrive, each once.
  std::vector<Message> Incoming() const;

  // What can leave from the input, at once. Each member begins with another peer, so that not all send to the first.
  std::vector<Message> Outgoing() const;

  // Where the message's bytes are of use: a result's place in the output, and a contribution's if it is the only one. Null
  // for others.
  void* PlaceOf(const Message& message) const;

  // `message`, of Incoming(), is at `data`: in its place, or anywhere. A contribution is used until
  // all of its segment have come, and `owner` keeps it alive until then. Returns what can leave now, from the output. May be
  // called on several threads at once.
  std::vector<Message> Arrived(const Message& message, const void* data, std::shared_ptr<void> owner);

  // Whether results follow the contributions: reduce-scatter and all-gather, which may be ordered apart.
  bool in_halves() const { return spec_.members > 1 && !layout_.everybody(); }

  // The output is complete. True from the beginning if nothing is to arrive.
  bool done() const;

 private:
  struct Part {
    const void* data = nullptr;
    std::shared_ptr<void> owner;
  };
  // The segment of a piece that this member combines.
  struct Segment {
    std::vector<Part> parts;  // by member
    int missing = 0;
  };

  const char* In(int64_t element) const { return static_cast<const char*>(input_) + element * bytes_; }
  char* Out(int64_t element) const { return static_cast<char*>(output_) + element * bytes_; }
  int divisor() const { return spec_.mean ? spec_.members : 0; }
  void Combine(int64_t piece, const Range& range, const std::vector<Part>& parts);

  const ExchangeSpec spec_;
  const int64_t bytes_;  // of an element
  const Layout layout_;
  const void* const input_;
  void* const output_;
  mutable Mutex mu_;
  std::vector<Segment> segments_ TFSCHED_GUARDED_BY(mu_);  // by piece
  int64_t left_ TFSCHED_GUARDED_BY(mu_) = 0;               // results to arrive and segments to combine
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_EXCHANGE_H_
