// One member's part of the all-reduce of one tensor: what to send when, and what to make of what arrives.
#ifndef TFSCHED_CC_COLLECTIVE_EXCHANGE_H_
#define TFSCHED_CC_COLLECTIVE_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/collective/algorithm.h"
#include "cc/collective/elements.h"
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
  std::vector<int64_t> piece_elements;  // of each piece, where a plan has them of several sizes; they count instead
  Way way = Way::kDirect;
};

// Knows no network: its owner moves the messages, in any order and on any threads. Combines in the order that the algorithm
// says, so all get the same bits, whatever comes first. All memory has to stay until the owner has sent what it was told to.
class Exchange {
 public:
  // `scratch` has ScratchElements(spec) elements.
  Exchange(const ExchangeSpec& spec, const void* input, void* output, void* scratch);

  static int64_t ScratchElements(const ExchangeSpec& spec);

  // What will arrive, each once.
  std::vector<Message> Incoming() const;

  // What can leave at once.
  std::vector<Message> Outgoing() const;

  // Where the message's bytes belong. Null where they are of use wherever they are.
  void* PlaceOf(const Message& message) const;

  // `message`, of Incoming(), is at `data`: in its place, or anywhere. If it has none it is used until all of its piece have
  // come, and `owner` keeps it alive until then. Returns what can leave now. May be called on several threads at once.
  std::vector<Message> Arrived(const Message& message, const void* data, std::shared_ptr<void> owner);

  // Whether results follow the contributions: reduce-scatter and all-gather, which may be ordered apart.
  bool in_halves() const { return spec_.members > 1 && (spec_.way == Way::kDirect || spec_.way == Way::kRing); }

  // How many pieces the tensor is cut into.
  int64_t pieces() const { return pieces_; }

  // The output is complete. True from the beginning if nothing is to arrive.
  bool done() const;

 private:
  // What a member has sent that has no place.
  struct Part {
    const void* data = nullptr;
    std::shared_ptr<void> owner;
  };

  char* At(Memory memory, int64_t element) const;
  void Combine(const Reaction& reaction, const std::vector<Part>& parts);

  const ExchangeSpec spec_;
  const int64_t bytes_;  // of an element
  const int64_t pieces_;
  const void* const input_;
  void* const output_;
  void* const scratch_;
  mutable Mutex mu_;
  std::unique_ptr<Algorithm> algorithm_ TFSCHED_GUARDED_BY(mu_);
  std::vector<std::vector<Part>> parts_ TFSCHED_GUARDED_BY(mu_);  // by piece, by member
  int64_t left_ TFSCHED_GUARDED_BY(mu_) = 0;                      // messages to arrive
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_EXCHANGE_H_
