// Values that were sent ahead, and who waits for them; see received_ahead.h.
#include "cc/barrier/received_ahead.h"

#include <algorithm>

namespace tfsched {
namespace {

constexpr size_t kKept = 2;

}  // namespace

void ReceivedAhead::AddReader(const Key& key) {
  const MutexLock lock(&mu_);
  ++entries_[key].readers;
}

void ReceivedAhead::RemoveReader(const Key& key) {
  Entry gone;  // its buffers are freed without the lock
  const MutexLock lock(&mu_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || --found->second.readers > 0) return;
  gone = std::move(found->second);
  waiting_ -= static_cast<int64_t>(gone.waiting.size());
  entries_.erase(found);
}

void ReceivedAhead::Put(const Key& key, int64_t token, Value value) {
  Value old;  // its buffer is freed without the lock
  std::shared_ptr<Taker> taker;
  {
    const MutexLock lock(&mu_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    auto& waiting = found->second.waiting;
    for (auto it = waiting.begin(); it != waiting.end() && taker == nullptr;) {
      if (it->token != token) {
        ++it;
        continue;
      }
      if (it->taker->Claim()) taker = std::move(it->taker);
      it = waiting.erase(it);
      --waiting_;
    }
    if (taker == nullptr) {
      auto& values = found->second.values;
      values.emplace_back(token, std::move(value));
      if (values.size() > kKept) {
        old = std::move(values.front().second);
        values.pop_front();
      }
    }
  }
  if (taker != nullptr) taker->Call(Outcome(), std::move(value));
}

bool ReceivedAhead::Take(const Key& key, int64_t token, const std::shared_ptr<Taker>& taker) {
  Value value;
  {
    const MutexLock lock(&mu_);
    if (taker->claimed()) return true;  // given up before it began
    const auto found = entries_.find(key);
    if (found == entries_.end()) return false;
    auto& values = found->second.values;
    const auto it = std::find_if(values.begin(), values.end(), [&](const auto& kept) { return kept.first == token; });
    if (it == values.end()) {
      if (ended_.Has(token)) return false;
      found->second.waiting.push_back({token, taker});
      ++waiting_;
      return true;
    }
    if (!taker->Claim()) return true;
    value = std::move(it->second);
    values.erase(it);  // what has arrived before it may be a later function's
  }
  taker->Call(Outcome(), std::move(value));
  return true;
}

void ReceivedAhead::CancelTake(const Key& key, const std::shared_ptr<Taker>& taker) {
  const MutexLock lock(&mu_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  auto& waiting = found->second.waiting;
  const auto gone = std::remove_if(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.taker == taker; });
  waiting_ -= waiting.end() - gone;
  waiting.erase(gone, waiting.end());
}

std::vector<ReceivedAhead::Lost> ReceivedAhead::EndToken(int64_t token) {
  std::vector<Lost> lost;
  const MutexLock lock(&mu_);
  ended_.Add(token);
  if (waiting_ == 0) return lost;
  for (auto& entry : entries_) {
    auto& waiting = entry.second.waiting;
    for (auto it = waiting.begin(); it != waiting.end();) {
      if (it->token != token) {
        ++it;
        continue;
      }
      lost.push_back({entry.first.first, std::move(it->taker)});
      it = waiting.erase(it);
      --waiting_;
    }
  }
  return lost;
}

ReceivedAhead::Counters ReceivedAhead::counters() const {
  const MutexLock lock(&mu_);
  Counters counters;
  counters.waiting = waiting_;
  for (const auto& entry : entries_) counters.values += static_cast<int64_t>(entry.second.values.size());
  return counters;
}

}  // namespace tfsched
