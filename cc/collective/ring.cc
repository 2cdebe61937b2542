// ring: reduce-scatter and all-gather around a ring (Patarasuk and Yuan, 2009, section 3). Segment s of a piece begins at
// member s + 1:
//
//   s+1 ──► s+2 ──► ... ──► s      each adds its own values to what it is given; s is the last, and has the sum
//   s   ──► s+1 ──► ... ──► s-1    the sum goes on
//
// As many bytes and messages as direct has, but in 2 (W - 1) rounds, each of which waits for the one before. Each member
// sends to one other only and receives from one only. A segment's sum has the order s+1, ..., W-1, 0, ..., s, for what goes
// around cannot begin at member 0 everywhere without sending more: other last bits than direct has with three members and
// more.
#include <utility>

#include "cc/collective/algorithm.h"

namespace tfsched {
namespace {

class Ring : public Algorithm {
 public:
  Ring(const Layout& layout, int me) : layout_(layout), me_(me) {}

  std::vector<Message> Incoming() const override {
    std::vector<Message> messages;
    for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
      for (int step = 2; step <= layout_.members(); ++step) {  // in the order in which they come
        Append(Message::Kind::kContribution, Member(-1), piece, Member(-step), Memory::kOutput, &messages);
      }
      for (int step = 1; step < layout_.members(); ++step) {
        Append(Message::Kind::kResult, Member(-1), piece, Member(-step), Memory::kOutput, &messages);
      }
    }
    return messages;
  }

  std::vector<Message> Outgoing() const override {
    std::vector<Message> messages;
    for (int64_t piece = 0; layout_.members() > 1 && piece < layout_.pieces(); ++piece) {
      Append(Message::Kind::kContribution, Member(1), piece, Member(-1), Memory::kInput, &messages);
    }
    return messages;
  }

  Reaction Arrived(const Message& message) override {
    Reaction reaction;
    const int segment = message.number;
    if (message.kind == Message::Kind::kContribution) {
      reaction.combined = message.range;
      reaction.complete = segment == me_;
      reaction.operands = {{Memory::kOutput, message.range.begin, message.peer}, {Memory::kInput, message.range.begin, me_}};
      const auto kind = reaction.complete ? Message::Kind::kResult : Message::Kind::kContribution;
      Append(kind, Member(1), message.piece, segment, Memory::kOutput, &reaction.outgoing);
    } else if (segment != Member(1)) {
      Append(Message::Kind::kResult, Member(1), message.piece, segment, Memory::kOutput, &reaction.outgoing);
    }
    return reaction;
  }

 private:
  int Member(int distance) const { return (me_ + layout_.members() + distance) % layout_.members(); }

  void Append(Message::Kind kind, int peer, int64_t piece, int segment, Memory memory, std::vector<Message>* to) const {
    const Range range = layout_.SegmentOf(piece, segment);
    if (range.size() > 0) to->push_back({kind, peer, piece, segment, memory, range});
  }

  const Layout layout_;
  const int me_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeRing(const Layout& layout, int me) { return std::make_unique<Ring>(layout, me); }

}  // namespace tfsched
