// everybody: each member sends its own values to every other one, and all combine all of them in the order of the members.
//
// One round and W - 1 messages a piece, half as many as direct has; but W - 1 times the tensor's bytes leave each member.
// For two members that is the least that any way needs.
#include <utility>

#include "cc/collective/algorithm.h"

namespace tfsched {
namespace {

class Everybody : public Algorithm {
 public:
  Everybody(const Layout& layout, int me) : layout_(layout), me_(me), missing_(layout.pieces(), layout.members() - 1) {}

  std::vector<Message> Incoming() const override { return All(layout_.members() - 1, Where()); }
  std::vector<Message> Outgoing() const override { return All(1, Memory::kInput); }

  Reaction Arrived(const Message& message) override {
    Reaction reaction;
    if (--missing_[message.piece] > 0) return reaction;
    reaction.combined = message.range;
    reaction.complete = true;
    for (int member = 0; member < layout_.members(); ++member) {
      reaction.operands.push_back({member == me_ ? Memory::kInput : Where(), message.range.begin, member});
    }
    return reaction;
  }

 private:
  // An only contribution can lie where the sum will.
  Memory Where() const { return layout_.members() == 2 ? Memory::kOutput : Memory::kArrived; }

  // A message a piece and peer, the one that is `stride` members further first.
  std::vector<Message> All(int stride, Memory memory) const {
    std::vector<Message> messages;
    for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
      for (int step = 1, peer = me_; step < layout_.members(); ++step) {
        peer = (peer + stride) % layout_.members();
        messages.push_back({Message::Kind::kContribution, peer, piece, 0, memory, layout_.PieceOf(piece)});
      }
    }
    return messages;
  }

  const Layout layout_;
  const int me_;
  std::vector<int> missing_;  // by piece
};

}  // namespace

std::unique_ptr<Algorithm> MakeEverybody(const Layout& layout, int me) { return std::make_unique<Everybody>(layout, me); }

}  // namespace tfsched
