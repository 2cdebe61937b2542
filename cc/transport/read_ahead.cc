// SentAhead and Stock: two tables under locks.
#include "cc/transport/read_ahead.h"

#include <algorithm>
#include <utility>

#include "tensorflow/core/common_runtime/dma_helper.h"

namespace tfsched {
namespace {

constexpr int kLongestPause = 64;
constexpr size_t kKept = 2;

bool SameBuffer(const tensorflow::Tensor& a, const tensorflow::Tensor& b) {
  return tensorflow::DMAHelper::buffer(&a) == tensorflow::DMAHelper::buffer(&b) && a.shape() == b.shape() &&
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

void SentAhead::Sent(const std::string& key, const std::string& client, int64_t token, const tensorflow::Tensor& value) {
  tensorflow::Tensor old;  // its buffer is freed without the lock
  std::lock_guard<std::mutex> lock(mu_);
  Entry& entry = entries_[key];
  old = entry.value;
  entry.client = client;
  entry.token = token;
  entry.arrived = false;
  entry.value = value;
  ++counters_.sent;
}

void SentAhead::Arrived(const std::string& key, int64_t token) {
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found != entries_.end() && found->second.token == token) found->second.arrived = true;
}

int64_t SentAhead::Match(const std::string& key, const std::string& client, const tensorflow::Tensor& current) {
  tensorflow::Tensor held;
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found == entries_.end() || found->second.token == 0) return 0;
  Entry& entry = found->second;
  const int64_t token = entry.token;
  held = std::move(entry.value);
  entry.value = tensorflow::Tensor();
  entry.token = 0;
  if (!entry.arrived || entry.client != client) return 0;
  if (SameBuffer(held, current)) {
    entry.misses = 0;
    ++counters_.used;
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
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found == entries_.end()) return;
  auto& values = found->second.values;
  values.emplace_back(token, value);
  if (values.size() > kKept) {
    old = std::move(values.front().second);
    values.pop_front();
  }
}

bool Stock::Take(const Key& key, int64_t token, tensorflow::Tensor* value) {
  std::lock_guard<std::mutex> lock(mu_);
  auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  auto& values = found->second.values;
  const auto it = std::find_if(values.begin(), values.end(), [&](const auto& kept) { return kept.first == token; });
  if (it == values.end()) return false;
  *value = std::move(it->second);
  values.erase(values.begin(), it + 1);
  return true;
}

SentAhead& ProcessSentAhead() {
  static auto* sent = new SentAhead();
  return *sent;
}

Stock& ProcessStock() {
  static auto* stock = new Stock();
  return *stock;
}

tensorflow::TensorShape MarkerShape(int64_t token) { return tensorflow::TensorShape({0, token}); }

int64_t TokenOfMarker(const tensorflow::Tensor& value) {
  return value.dims() == 2 && value.dim_size(0) == 0 ? value.dim_size(1) : 0;
}

}  // namespace tfsched
