// One member's part of an all-reduce; see exchange.h.
#include "cc/collective/exchange.h"

#include <cstring>
#include <utility>

namespace tfsched {
namespace {

Layout LayoutOf(const ExchangeSpec& spec) {
  return Layout(spec.members, spec.elements, SizeOf(spec.type), spec.piece_bytes, spec.piece_elements);
}

std::unique_ptr<Algorithm> AlgorithmOf(const ExchangeSpec& spec) { return MakeAlgorithm(spec.way, LayoutOf(spec), spec.me); }

}  // namespace

int64_t Exchange::ScratchElements(const ExchangeSpec& spec) { return AlgorithmOf(spec)->ScratchElements(); }

Exchange::Exchange(const ExchangeSpec& spec, const void* input, void* output, void* scratch)
    : spec_(spec),
      bytes_(SizeOf(spec.type)),
      pieces_(LayoutOf(spec).pieces()),
      input_(input),
      output_(output),
      scratch_(scratch) {
  const MutexLock lock(&mu_);
  algorithm_ = AlgorithmOf(spec);
  if (spec_.members == 1) {
    Reduce(spec_.type, spec_.reduction, {input_}, spec_.mean ? 1 : 0, spec_.elements, output_);
    return;
  }
  const Layout layout = LayoutOf(spec);
  parts_.resize(layout.pieces());
  left_ = static_cast<int64_t>(algorithm_->Incoming().size());
  if (algorithm_->ScratchElements() == 0) return;
  for (int64_t piece = 0; piece < layout.pieces(); ++piece) {
    const Range range = layout.PieceOf(piece);
    std::memcpy(At(Memory::kScratch, algorithm_->ScratchOf(piece)), At(Memory::kInput, range.begin), range.size() * bytes_);
  }
}

std::vector<Message> Exchange::Incoming() const {
  const MutexLock lock(&mu_);
  return spec_.members == 1 ? std::vector<Message>() : algorithm_->Incoming();
}

std::vector<Message> Exchange::Outgoing() const {
  const MutexLock lock(&mu_);
  return spec_.members == 1 ? std::vector<Message>() : algorithm_->Outgoing();
}

char* Exchange::At(Memory memory, int64_t element) const {
  void* const base = memory == Memory::kInput     ? const_cast<void*>(input_)  // only read
                     : memory == Memory::kOutput  ? output_
                     : memory == Memory::kScratch ? scratch_
                                                  : nullptr;
  return base == nullptr ? nullptr : static_cast<char*>(base) + element * bytes_;
}

void* Exchange::PlaceOf(const Message& message) const { return At(message.memory, message.range.begin); }

std::vector<Message> Exchange::Arrived(const Message& message, const void* data, std::shared_ptr<void> owner) {
  void* const place = PlaceOf(message);
  if (place != nullptr && place != data) std::memcpy(place, data, message.range.size() * bytes_);
  Reaction reaction;
  std::vector<Part> parts;
  {
    const MutexLock lock(&mu_);
    std::vector<Part>& kept = parts_[message.piece];
    if (place == nullptr) {
      kept.resize(spec_.members);
      kept[message.peer] = {data, std::move(owner)};
    }
    reaction = algorithm_->Arrived(message);
    // A piece's parts are combined at once.
    if (reaction.combined.size() > 0) parts.swap(kept);
  }
  if (reaction.combined.size() > 0) Combine(reaction, parts);
  const MutexLock lock(&mu_);
  --left_;
  return std::move(reaction.outgoing);
}

void Exchange::Combine(const Reaction& reaction, const std::vector<Part>& parts) {
  std::vector<const void*> data;
  for (const Operand& operand : reaction.operands) {
    data.push_back(operand.memory == Memory::kArrived ? parts[operand.peer].data : At(operand.memory, operand.begin));
  }
  const int divisor = spec_.mean && reaction.complete ? spec_.members : 0;
  Reduce(spec_.type, spec_.reduction, data, divisor, reaction.combined.size(), At(Memory::kOutput, reaction.combined.begin));
}

bool Exchange::done() const {
  const MutexLock lock(&mu_);
  return left_ == 0;
}

}  // namespace tfsched
