// The ring buffer behind the transfer trace.
#include "cc/core/trace_ring.h"

#include <utility>

namespace tfsched {

uint64_t TraceRing::Append(TransferRecord record) {
  const uint64_t number = next_++;
  if (capacity_ == 0) {
    oldest_ = next_;
    return number;
  }
  if (records_.size() < capacity_) {
    records_.push_back(std::move(record));
  } else {
    records_[number % capacity_] = std::move(record);
  }
  if (next_ - oldest_ > capacity_) oldest_ = next_ - capacity_;
  return number;
}

TransferRecord* TraceRing::Find(uint64_t number) {
  if (number < oldest_ || number >= next_) return nullptr;
  return &records_[number % capacity_];
}

std::vector<TransferRecord> TraceRing::Snapshot() const {
  std::vector<TransferRecord> result;
  result.reserve(next_ - oldest_);
  for (uint64_t number = oldest_; number < next_; ++number) result.push_back(records_[number % capacity_]);
  return result;
}

void TraceRing::Clear() { oldest_ = next_; }

}  // namespace tfsched
