// doubling: an all-gather in ceil(log2 W) rounds (Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997, section 4); then all combine all values in the order of the members.
//
// A member keeps the pieces that it has in one row, its own first, and each round doubles them:
//
//   before round r   [ me | me+1 | ... | me+2^r-1 ]
//                      sends them to me-2^r; receives those of me+2^r, as many, or as many as are missing
//   after it         [ me | me+1 | ...          ... | me+2^(r+1)-1 ]
//
// As many bytes as everybody has, in fewer messages, each of which waits for the one of the round before. Sums as they
// travel (recursive doubling in the usual sense) would be fewer bytes, but their brackets would give other bits than direct
// has.
#include <algorithm>
#include <utility>

#include "cc/collective/algorithm.h"

namespace tfsched {
namespace {

class Doubling : public Algorithm {
 public:
  Doubling(const Layout& layout, int me) : layout_(layout), me_(me), arrived_(layout.pieces(), 0) {
    while ((1 << rounds_) < layout.members()) ++rounds_;
  }

  std::vector<Message> Incoming() const override {
    std::vector<Message> messages;
    for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
      for (int round = 0; round < rounds_; ++round) {
        messages.push_back(MessageOf(piece, round, Member(1 << round), 1 << round));
      }
    }
    return messages;
  }

  std::vector<Message> Outgoing() const override {
    std::vector<Message> messages;
    for (int64_t piece = 0; rounds_ > 0 && piece < layout_.pieces(); ++piece) messages.push_back(Sent(piece, 0));
    return messages;
  }

  Reaction Arrived(const Message& message) override {
    Reaction reaction;
    uint32_t& arrived = arrived_[message.piece];
    const int before = Complete(arrived);
    arrived |= uint32_t{1} << message.number;
    const int now = Complete(arrived);
    for (int round = before + 1; round <= now && round < rounds_; ++round) {
      reaction.outgoing.push_back(Sent(message.piece, round));
    }
    if (now < rounds_) return reaction;
    reaction.combined = layout_.PieceOf(message.piece);
    reaction.complete = true;
    for (int member = 0; member < layout_.members(); ++member) {
      const int place = (member - me_ + layout_.members()) % layout_.members();
      reaction.operands.push_back({Memory::kScratch, PlaceOf(message.piece, place), member});
    }
    return reaction;
  }

  int64_t ScratchElements() const override { return layout_.members() * layout_.elements(); }
  int64_t ScratchOf(int64_t piece) const override { return PlaceOf(piece, 0); }

 private:
  int Member(int distance) const { return (me_ + layout_.members() + distance) % layout_.members(); }

  // Where the values of the member that is `place` further lie.
  int64_t PlaceOf(int64_t piece, int place) const {
    const Range range = layout_.PieceOf(piece);
    return layout_.members() * range.begin + place * range.size();
  }

  // From `place` on, as many as the round moves.
  Message MessageOf(int64_t piece, int round, int peer, int place) const {
    const int count = std::min(1 << round, layout_.members() - (1 << round));
    const Range range = {PlaceOf(piece, place), PlaceOf(piece, place + count)};
    return {Message::Kind::kContribution, peer, piece, round, Memory::kScratch, range};
  }

  Message Sent(int64_t piece, int round) const { return MessageOf(piece, round, Member(-(1 << round)), 0); }

  // Rounds in a row, from the first on.
  static int Complete(uint32_t arrived) {
    int rounds = 0;
    for (; (arrived >> rounds & 1) != 0; ++rounds) {
    }
    return rounds;
  }

  const Layout layout_;
  const int me_;
  int rounds_ = 0;
  std::vector<uint32_t> arrived_;  // by piece: a bit a round
};

}  // namespace

std::unique_ptr<Algorithm> MakeDoubling(const Layout& layout, int me) { return std::make_unique<Doubling>(layout, me); }

}  // namespace tfsched
