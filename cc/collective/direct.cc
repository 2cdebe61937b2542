// direct: reduce-scatter and all-gather in one round each. A piece has a segment for each member, its owner.
//
//   round 1   each member sends every other one that one's segment of its own values
//   round 2   each member combines its segment in the order of the members, and sends it to every other one
//
// 2 (W - 1) / W of the tensor's bytes leave each member, the least that any way needs (Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", 2009), in 2 (W - 1) messages a piece.
#include <utility>

#include "cc/collective/algorithm.h"

namespace tfsched {
namespace {

class Direct : public Algorithm {
 public:
  Direct(const Layout& layout, int me) : layout_(layout), me_(me), missing_(layout.pieces(), layout.members() - 1) {}

  std::vector<Message> Incoming() const override {
    std::vector<Message> messages;
    for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
      const Range mine = layout_.SegmentOf(piece, me_);
      for (int step = 1; step < layout_.members(); ++step) {
        const int peer = (me_ + layout_.members() - step) % layout_.members();
        if (mine.size() > 0) messages.push_back({Message::Kind::kContribution, peer, piece, 0, Memory::kArrived, mine});
        const Range theirs = layout_.SegmentOf(piece, peer);
        if (theirs.size() > 0) messages.push_back({Message::Kind::kResult, peer, piece, 0, Memory::kOutput, theirs});
      }
    }
    return messages;
  }

  std::vector<Message> Outgoing() const override {
    std::vector<Message> messages;
    for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
      for (int step = 1; step < layout_.members(); ++step) {
        const int peer = (me_ + step) % layout_.members();
        const Range range = layout_.SegmentOf(piece, peer);
        if (range.size() > 0) messages.push_back({Message::Kind::kContribution, peer, piece, 0, Memory::kInput, range});
      }
    }
    return messages;
  }

  Reaction Arrived(const Message& message) override {
    Reaction reaction;
    if (message.kind == Message::Kind::kResult || --missing_[message.piece] > 0) return reaction;
    reaction.combined = message.range;
    reaction.complete = true;
    for (int member = 0; member < layout_.members(); ++member) {
      reaction.operands.push_back({member == me_ ? Memory::kInput : Memory::kArrived, message.range.begin, member});
    }
    for (int step = 1; step < layout_.members(); ++step) {
      const int peer = (me_ + step) % layout_.members();
      reaction.outgoing.push_back({Message::Kind::kResult, peer, message.piece, 0, Memory::kOutput, message.range});
    }
    return reaction;
  }

 private:
  const Layout layout_;
  const int me_;
  std::vector<int> missing_;  // by piece: contributions
};

}  // namespace

std::unique_ptr<Algorithm> MakeDirect(const Layout& layout, int me) { return std::make_unique<Direct>(layout, me); }

}  // namespace tfsched
