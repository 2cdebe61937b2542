// SentAhead and Stock: two tables under locks.
#include "cc/transport/read_ahead.h"

#include <algorithm>
#include <utility>

#include "cc/transport/barrier.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

constexpr int kLongestPause = 64;
constexpr size_t kKept = 2;
constexpr size_t kEndedKept = 256;
constexpr int64_t kGiveUpUs = 10'000'000;

bool SameBuffer(const tensorflow::Tensor& a, const tensorflow::Tensor& b) {
  const tensorflow::TensorBuffer* buffer = tensorflow::DMAHelper::buffer(&a);
  return buffer != nullptr && buffer == tensorflow::DMAHelper::buffer(&b) && a.shape() == b.shape() &&
         a.dtype() == b.dtype();
}

}  // namespace

bool SentAhead::Worthwhile(const std::string& key) {
  std::lock_guard<std::mutex> lock(mu_);
  Entry& entry = entries_[key];
  if (entry.pause == 0) return true;
  --entry.pause;
  return false;
}

void SentAhead::Began(const std::string& key, const tensorflow::Tensor& before) {
  tensorflow::Tensor old = before;  // its buffer is freed without the lock
  std::lock_guard<std::mutex> lock(mu_);
  std::swap(entries_[key].begun, old);
}

void SentAhead::Replaced(const std::string& client, const tensorflow::Tensor& before, const tensorflow::Tensor& after,
                         std::vector<tensorflow::Tensor>* freed) {
  std::lock_guard<std::mutex> lock(mu_);
  for (auto& [key, entry] : entries_) {
    // What was sent before an update of its own is old, whoever else has written.
    if (entry.token != 0 && entry.client != client && SameBuffer(entry.latest, before)) {
      freed->push_back(std::exchange(entry.latest, after));
    }
    if (SameBuffer(entry.begun, before)) freed->push_back(std::exchange(entry.begun, after));
  }
}

void SentAhead::Sent(const std::string& key, const std::string& client, int64_t token, const tensorflow::Tensor& value,
                     bool begun) {
  tensorflow::Tensor old, older, oldest;  // their buffers are freed without the lock
  std::lock_guard<std::mutex> lock(mu_);
  Entry& entry = entries_[key];
  old = std::exchange(entry.value, value);
  older = std::exchange(entry.latest, begun ? entry.begun : value);
  oldest = std::exchange(entry.begun, tensorflow::Tensor());
  entry.client = client;
  entry.token = token;
  ++counters_.sent;
}

int64_t SentAhead::Match(const std::string& key, const std::string& client, int64_t committed,
                         const tensorflow::Tensor& current, bool enough) {
  tensorflow::Tensor held, latest;
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found == entries_.end() || found->second.token == 0) return 0;
  Entry& entry = found->second;
  const int64_t token = entry.token;
  held = std::move(entry.value);
  latest = std::move(entry.latest);
  entry.value = entry.latest = tensorflow::Tensor();
  entry.token = 0;
  if (token != committed || entry.client != client) return 0;
  const bool unchanged = SameBuffer(held, current);
  if (unchanged || (enough && SameBuffer(latest, current))) {
    entry.misses = 0;
    ++counters_.used;
    counters_.behind += unchanged ? 0 : 1;
    return token;
  }
  entry.pause = std::min(kLongestPause, 1 << std::min(entry.misses, 6));
  ++entry.misses;
  ++counters_.missed;
  return 0;
}

void SentAhead::Forget(const std::string& key) {
  std::lock_guard<std::mutex> lock(mu_);
  entries_.erase(key);
}

SentAhead::Counters SentAhead::counters() const {
  std::lock_guard<std::mutex> lock(mu_);
  return counters_;
}

void Stock::AddReader(const Key& key) {
  std::lock_guard<std::mutex> lock(mu_);
  ++entries_[key].readers;
}

void Stock::RemoveReader(const Key& key) {
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found != entries_.end() && --found->second.readers == 0) entries_.erase(found);
}

void Stock::Put(const Key& key, int64_t token, const tensorflow::Tensor& value) {
  tensorflow::Tensor old;  // its buffer is freed without the lock
  std::shared_ptr<Taker> taker;
  {
    std::lock_guard<std::mutex> lock(mu_);
    auto found = entries_.find(key);
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
      values.emplace_back(token, value);
      if (values.size() > kKept) {
        old = std::move(values.front().second);
        values.pop_front();
      }
    }
  }
  if (taker != nullptr) taker->Call(absl::OkStatus(), &value);
}

bool Stock::Take(const Key& key, int64_t token, const std::shared_ptr<Taker>& taker) {
  tensorflow::Tensor value;
  {
    std::lock_guard<std::mutex> lock(mu_);
    auto found = entries_.find(key);
    if (found == entries_.end()) return false;
    auto& values = found->second.values;
    const auto it = std::find_if(values.begin(), values.end(), [&](const auto& kept) { return kept.first == token; });
    if (it == values.end()) {
      if (std::find(ended_.begin(), ended_.end(), token) != ended_.end()) return false;
      found->second.waiting.push_back({token, taker});
      ++waiting_;
      return true;
    }
    if (!taker->Claim()) return true;
    value = std::move(it->second);
    values.erase(values.begin(), it + 1);
  }
  taker->Call(absl::OkStatus(), &value);
  return true;
}

void Stock::CancelTake(const Key& key, const std::shared_ptr<Taker>& taker) {
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found == entries_.end()) return;
  auto& waiting = found->second.waiting;
  const auto gone = std::remove_if(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.taker == taker; });
  waiting_ -= waiting.end() - gone;
  waiting.erase(gone, waiting.end());
}

std::vector<std::shared_ptr<Stock::Taker>> Stock::EndToken(int64_t token) {
  std::vector<std::shared_ptr<Taker>> lost;
  std::lock_guard<std::mutex> lock(mu_);
  ended_.push_back(token);
  if (ended_.size() > kEndedKept) ended_.pop_front();
  if (waiting_ == 0) return lost;
  for (auto& entry : entries_) {
    auto& waiting = entry.second.waiting;
    for (auto it = waiting.begin(); it != waiting.end();) {
      if (it->token != token) {
        ++it;
        continue;
      }
      lost.push_back(std::move(it->taker));
      it = waiting.erase(it);
      --waiting_;
    }
  }
  return lost;
}

SentAhead& ProcessSentAhead() {
  static auto* sent = new SentAhead();
  return *sent;
}

Stock& ProcessStock() {
  static auto* stock = new Stock();
  return *stock;
}

void GiveUpLater(std::shared_ptr<Stock::Taker> taker) {
  ProcessAlarm().After(kGiveUpUs, [taker] {
    if (!taker->Claim()) return;
    // What follows is the step's business, not the alarm's.
    tensorflow::Env::Default()->SchedClosure([taker] {
      taker->Call(tensorflow::errors::Aborted(
                      "tfsched: a value was lost with the background update that sent it; run the step again."),
                  nullptr);
    });
  });
}

tensorflow::TensorShape MarkerShape(int64_t token) { return tensorflow::TensorShape({0, token}); }

int64_t TokenOfMarker(const tensorflow::Tensor& value) {
  return value.dims() == 2 && value.dim_size(0) == 0 ? value.dim_size(1) : 0;
}

}  // namespace tfsched
