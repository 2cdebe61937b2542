// The ways in which members exchange one tensor: which messages one of them sends and receives, and in which order.
#ifndef TFSCHED_CC_COLLECTIVE_ALGORITHM_H_
#define TFSCHED_CC_COLLECTIVE_ALGORITHM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/collective/layout.h"

namespace tfsched {

// kDirect     A piece has a segment for each member, its owner, who combines it and gives it to all. Two rounds.
// kEverybody  All combine all, from the others' pieces. One round.
// kDoubling   As kEverybody, but a member passes on what it has been given: after each round it has the pieces of twice as
// many. kRing       A segment goes around, and each member adds its own; then it goes around as a result. 2 (W - 1) rounds.
enum class Way { kDirect, kEverybody, kDoubling, kRing };

const char* NameOf(Way way);
// Nothing if no way has that name.
std::optional<Way> WayNamed(const std::string& name);

// Where a member has elements: the tensor that it gives, the one that it gets, memory that the way asks for, or where they
// have arrived.
enum class Memory { kInput, kOutput, kScratch, kArrived };

// What goes from one member to another, as one of the two sees it.
struct Message {
  // Values that have yet to be combined; or such that have been with those of all members.
  enum class Kind { kContribution, kResult };
  Kind kind = Kind::kContribution;
  int peer = 0;  // where it goes, or where it comes from
  int64_t piece = 0;
  int number = 0;                  // tells it from others of its kind and piece between the two
  Memory memory = Memory::kInput;  // where it leaves from; where it belongs, kArrived for nowhere
  Range range;                     // of `memory`; of the output for kArrived
};

// In which turn messages of one exchange leave a member, the smallest first. All peers get their part of a piece before the
// next piece's: a peer that asks late does not wait until the others have everything. Contributions go before results, so
// that the last sum is not waited for while the link is idle.
inline int64_t TurnOf(const Message& message, int64_t pieces) {
  return message.piece + (message.kind == Message::Kind::kResult ? pieces : 0);
}

// Elements from `begin` on; of kArrived those that `peer` has sent of the piece.
struct Operand {
  Memory memory = Memory::kInput;
  int64_t begin = 0;
  int peer = 0;
};

// What a message that has arrived leads to: perhaps elements of the output that can be combined now, from left to right, and
// then what can leave.
struct Reaction {
  Range combined;  // empty: nothing
  std::vector<Operand> operands;
  bool complete = false;  // all members' values are in them
  std::vector<Message> outgoing;
};

// One member's part. Knows no bytes and no network, so that what is simulated is what runs. Not thread safe.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // What will arrive, each once, in any order. The output is complete when all has arrived and been reacted to.
  virtual std::vector<Message> Incoming() const = 0;

  // What can leave at once. Each member begins with another peer, so that not all send to the first.
  virtual std::vector<Message> Outgoing() const = 0;

  // `message`, of Incoming(), has arrived and is in its place.
  virtual Reaction Arrived(const Message& message) = 0;

  // How much memory it asks for besides input and output, and what each piece's part of it begins with: the piece itself.
  virtual int64_t ScratchElements() const { return 0; }
  virtual int64_t ScratchOf(int64_t piece) const { return 0; }
};

std::unique_ptr<Algorithm> MakeDirect(const Layout& layout, int me);
std::unique_ptr<Algorithm> MakeEverybody(const Layout& layout, int me);
std::unique_ptr<Algorithm> MakeDoubling(const Layout& layout, int me);
std::unique_ptr<Algorithm> MakeRing(const Layout& layout, int me);
std::unique_ptr<Algorithm> MakeAlgorithm(Way way, const Layout& layout, int me);

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_ALGORITHM_H_
