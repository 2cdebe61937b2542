// The handle table; see handle_table.h.
#include "cc/transport/handle_table.h"

#include "cc/core/per_process.h"
#include "cc/transport/barrier.h"
#include "tensorflow/core/platform/env.h"

namespace tfsched {

std::string KeyOf(const tensorflow::ResourceHandle& handle) {
  return handle.device() + "|" + handle.container() + "|" + handle.name();
}

HandleTable::HandleTable() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  random_.seed(seed);
}

int64_t HandleTable::Intern(const std::vector<tensorflow::Tensor>& handles) {
  std::string key;
  bool owning = false;
  for (const tensorflow::Tensor& tensor : handles) {
    const auto& handle = tensor.scalar<tensorflow::ResourceHandle>()();
    key.append(KeyOf(handle)).push_back('\n');
    owning = owning || handle.IsRefCounting();
  }
  bool arm = false;
  int64_t id = 0;
  {
    const MutexLock lock(&mu_);
    Entry& entry = entries_[key];
    if (entry.id == 0) {
      do {
        entry.id = static_cast<int64_t>(random_() >> 2);
      } while (entry.id == 0 || by_id_.count(entry.id) > 0);
      entry.handles = handles;
      entry.owning = owning;
      by_id_[entry.id] = &entry;
    }
    entry.used_us = static_cast<int64_t>(tensorflow::Env::Default()->NowMicros());
    id = entry.id;
    arm = owning && ArmLocked();
  }
  if (arm) ProcessAlarm().After(kKeptUs, [this] { ForgetOld(); });
  return id;
}

bool HandleTable::Find(int64_t id, std::vector<tensorflow::Tensor>* handles) const {
  const MutexLock lock(&mu_);
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return false;
  *handles = it->second->handles;
  return true;
}

bool HandleTable::ArmLocked() {
  if (armed_) return false;
  armed_ = true;
  return true;
}

void HandleTable::ForgetOld() {
  std::vector<Entry> gone;  // their variables are freed without the lock
  bool arm = false;
  {
    const MutexLock lock(&mu_);
    armed_ = false;
    const int64_t oldest_us = static_cast<int64_t>(tensorflow::Env::Default()->NowMicros()) - kKeptUs;
    bool left = false;
    for (auto it = entries_.begin(); it != entries_.end();) {
      Entry& entry = it->second;
      if (entry.owning && entry.used_us <= oldest_us) {
        by_id_.erase(entry.id);
        gone.push_back(std::move(entry));
        it = entries_.erase(it);
        continue;
      }
      left = left || entry.owning;
      ++it;
    }
    arm = left && ArmLocked();
  }
  if (arm) ProcessAlarm().After(kKeptUs, [this] { ForgetOld(); });
}

HandleTable& ProcessHandleTable() {
  static PerProcess<HandleTable> table;
  return table.Get();
}

}  // namespace tfsched
