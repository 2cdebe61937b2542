// One member's part of an all-reduce; see exchange.h.
#include "cc/collective/exchange.h"

#include <cstring>
#include <utility>

namespace tfsched {

Exchange::Exchange(const ExchangeSpec& spec, const void* input, void* output)
    : spec_(spec),
      bytes_(SizeOf(spec.type)),
      layout_(spec.members, spec.elements, bytes_, spec.piece_bytes, spec.whole_bytes),
      input_(input),
      output_(output) {
  const MutexLock lock(&mu_);
  if (spec_.members == 1) {
    Reduce(spec_.type, spec_.reduction, {input_}, divisor(), spec_.elements, output_);
    return;
  }
  segments_.resize(layout_.pieces());
  for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
    if (layout_.SegmentOf(piece, spec_.me).size() > 0) {
      segments_[piece].parts.resize(spec_.members);
      segments_[piece].missing = spec_.members - 1;
      ++left_;
    }
    if (layout_.everybody()) continue;
    for (int peer = 0; peer < spec_.members; ++peer) {
      if (peer != spec_.me && layout_.SegmentOf(piece, peer).size() > 0) ++left_;
    }
  }
}

std::vector<Message> Exchange::Incoming() const {
  std::vector<Message> messages;
  if (spec_.members == 1) return messages;
  for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
    const Range mine = layout_.SegmentOf(piece, spec_.me);
    for (int step = 1; step < spec_.members; ++step) {
      const int peer = (spec_.me + spec_.members - step) % spec_.members;
      if (mine.size() > 0) messages.push_back({Message::Kind::kContribution, peer, piece, mine});
      const Range theirs = layout_.SegmentOf(piece, peer);
      if (!layout_.everybody() && theirs.size() > 0) messages.push_back({Message::Kind::kResult, peer, piece, theirs});
    }
  }
  return messages;
}

std::vector<Message> Exchange::Outgoing() const {
  std::vector<Message> messages;
  for (int64_t piece = 0; piece < layout_.pieces(); ++piece) {
    for (int step = 1; step < spec_.members; ++step) {
      const int peer = (spec_.me + step) % spec_.members;
      const Range range = layout_.SegmentOf(piece, peer);
      if (range.size() > 0) messages.push_back({Message::Kind::kContribution, peer, piece, range});
    }
  }
  return messages;
}

void* Exchange::PlaceOf(const Message& message) const {
  const bool alone = message.kind == Message::Kind::kContribution && spec_.members == 2;
  return message.kind == Message::Kind::kResult || alone ? Out(message.range.begin) : nullptr;
}

std::vector<Message> Exchange::Arrived(const Message& message, const void* data, std::shared_ptr<void> owner) {
  if (message.kind == Message::Kind::kResult) {
    char* const place = Out(message.range.begin);
    if (place != data) std::memcpy(place, data, message.range.size() * bytes_);
    const MutexLock lock(&mu_);
    --left_;
    return {};
  }
  std::vector<Part> parts;
  {
    const MutexLock lock(&mu_);
    Segment& segment = segments_[message.piece];
    segment.parts[message.peer] = {data, std::move(owner)};
    if (--segment.missing > 0) return {};
    parts.swap(segment.parts);
  }
  Combine(message.piece, message.range, parts);
  std::vector<Message> results;
  if (!layout_.everybody()) {
    for (int step = 1; step < spec_.members; ++step) {
      const int peer = (spec_.me + step) % spec_.members;
      results.push_back({Message::Kind::kResult, peer, message.piece, message.range});
    }
  }
  const MutexLock lock(&mu_);
  --left_;
  return results;
}

void Exchange::Combine(int64_t piece, const Range& range, const std::vector<Part>& parts) {
  std::vector<const void*> data;
  for (int member = 0; member < spec_.members; ++member) {
    data.push_back(member == spec_.me ? In(range.begin) : parts[member].data);
  }
  Reduce(spec_.type, spec_.reduction, data, divisor(), range.size(), Out(range.begin));
}

bool Exchange::done() const {
  const MutexLock lock(&mu_);
  return left_ == 0;
}

}  // namespace tfsched
