// The scheduler: groups of tasks, their policies, counters and trace.
#include "cc/core/scheduler.h"

#include <algorithm>
#include <utility>

namespace tfsched {
namespace {

TransferRecord RecordOf(const CommTask& task) {
  TransferRecord record;
  record.name = task.info->name;
  record.sender = task.sender;
  record.receiver = task.info->receiver;
  record.step_id = task.step_id;
  record.bytes = task.bytes;
  record.rank = task.info->rank;
  record.requested_us = task.requested_us;
  record.ready_us = task.ready_us;
  return record;
}

}  // namespace

Scheduler::GroupKey Scheduler::KeyOf(const CommTask& task) {
  return GroupKey(task.step_id, task.sender, task.info->receiver, task.info->policy);
}

Scheduler::Group& Scheduler::GroupFor(const GroupKey& key, const CommTask& task) {
  auto it = groups_.find(key);
  if (it != groups_.end()) return it->second;
  PolicyOptions options;
  options.count = task.info->count;
  options.credit_bytes = task.info->credit_bytes;
  options.grace_us = options_.grace_us;
  Group& group = groups_[key];
  group.serial = next_serial_++;
  group.policy = MakePolicy(task.info->policy, options);
  if (group.policy == nullptr) group.policy = MakePolicy("fifo", options);
  return group;
}

void Scheduler::Touch(const GroupKey& key, Group* group) {
  if (group->idle) {
    idle_.erase(group->idle_position);
    group->idle = false;
  }
  if (!group->dirty) {
    group->dirty = true;
    dirty_.push_back(key);
  }
}

uint64_t Scheduler::Submit(CommTask task, int64_t now_us) {
  std::lock_guard<std::mutex> lock(mu_);
  latest_us_ = std::max(latest_us_, now_us);
  const uint64_t id = task.id = next_id_++;
  const GroupKey key = KeyOf(task);
  Group& group = GroupFor(key, task);
  Touch(key, &group);
  group.policy->Add(task, now_us);
  group.arrival.emplace(id, task.info->rank);
  if (task.info->rank < group.highest_started) ++counters_.late;
  group.queued.emplace(id, std::move(task));
  ++counters_.queue_depth;
  counters_.max_queue_depth = std::max(counters_.max_queue_depth, counters_.queue_depth);
  return id;
}

void Scheduler::Finish(uint64_t id, int64_t now_us) {
  std::lock_guard<std::mutex> lock(mu_);
  latest_us_ = std::max(latest_us_, now_us);
  auto wire = on_wire_.find(id);
  if (wire == on_wire_.end()) return;
  const CommTask& task = wire->second.task;
  if (TransferRecord* record = trace_.Find(wire->second.record)) record->released_us = now_us;
  counters_.on_wire_bytes -= task.bytes;
  const GroupKey key = KeyOf(task);
  auto it = groups_.find(key);
  // A group of an ended step is gone; a later one with its key must not be paid with another's credit.
  if (it != groups_.end() && it->second.serial == wire->second.group_serial) {
    Touch(key, &it->second);
    it->second.policy->Finished(task, now_us);
    --it->second.on_wire;
  }
  on_wire_.erase(wire);
}

void Scheduler::EndStep(int64_t step_id, int64_t now_us) {
  std::lock_guard<std::mutex> lock(mu_);
  auto it = groups_.lower_bound(GroupKey(step_id, std::string(), std::string(), std::string()));
  while (it != groups_.end() && std::get<0>(it->first) == step_id) {
    DropQueued(&it->second);
    if (it->second.idle) idle_.erase(it->second.idle_position);
    wakes_.erase(it->first);
    it = groups_.erase(it);
  }
}

void Scheduler::DropAll(std::vector<Start>* starts) {
  std::lock_guard<std::mutex> lock(mu_);
  for (auto& entry : groups_) DropQueued(&entry.second);
  groups_.clear();
  idle_.clear();
  wakes_.clear();
  for (auto& drop : pending_drops_) starts->push_back(std::move(drop));
  pending_drops_.clear();
}

void Scheduler::DropQueued(Group* group) {
  for (const auto& arrival : group->arrival) {
    auto queued = group->queued.find(arrival.first);
    TransferRecord record = RecordOf(queued->second);
    record.dropped = true;
    trace_.Append(std::move(record));
    ++counters_.dropped;
    --counters_.queue_depth;
    pending_drops_.push_back(Start{std::move(queued->second), true});
  }
  group->queued.clear();
  group->arrival.clear();
}

void Scheduler::StartTask(Group* group, uint64_t id, int64_t now_us, std::vector<Start>* starts) {
  auto queued = group->queued.find(id);
  CommTask& task = queued->second;
  if (group->arrival.begin()->first != id) ++counters_.reorderings;
  group->arrival.erase(id);
  group->highest_started = std::max(group->highest_started, task.info->rank);
  ++group->on_wire;
  ++counters_.tasks;
  counters_.bytes += task.bytes;
  counters_.on_wire_bytes += task.bytes;
  --counters_.queue_depth;
  TransferRecord record = RecordOf(task);
  record.started_us = now_us;
  OnWire wire;
  wire.group_serial = group->serial;
  wire.record = trace_.Append(std::move(record));
  // The wire keeps what it needs for the release; the callable goes with the start.
  wire.task.info = task.info;
  wire.task.sender = task.sender;
  wire.task.step_id = task.step_id;
  wire.task.bytes = task.bytes;
  wire.task.id = id;
  on_wire_.emplace(id, std::move(wire));
  starts->push_back(Start{std::move(task), false});
  group->queued.erase(queued);
}

int64_t Scheduler::Poll(int64_t now_us, std::vector<Start>* starts) {
  std::lock_guard<std::mutex> lock(mu_);
  // Events may have come after the caller read its clock; what they let start must not seem to start before them.
  now_us = std::max(now_us, latest_us_);
  for (auto& drop : pending_drops_) starts->push_back(std::move(drop));
  pending_drops_.clear();
  std::vector<GroupKey> keys;
  keys.swap(dirty_);
  for (const auto& wake : wakes_) {
    if (wake.second <= now_us) {
      auto it = groups_.find(wake.first);
      if (it != groups_.end() && !it->second.dirty) keys.push_back(wake.first);
    }
  }
  for (const GroupKey& key : keys) {
    auto it = groups_.find(key);
    if (it == groups_.end()) continue;
    Group& group = it->second;
    group.dirty = false;
    while (uint64_t id = group.policy->Next(now_us)) StartTask(&group, id, now_us, starts);
    counters_.step_asides += group.policy->step_asides() - group.step_asides_seen;
    group.step_asides_seen = group.policy->step_asides();
    const int64_t wake_at = group.policy->WakeAtUs();
    if (wake_at == kNever) {
      wakes_.erase(key);
    } else {
      wakes_[key] = wake_at;
    }
    FreeIfDone(it);
  }
  int64_t wake_at = kNever;
  for (const auto& wake : wakes_) wake_at = std::min(wake_at, wake.second);
  return wake_at;
}

void Scheduler::FreeIfDone(Groups::iterator it) {
  Group& group = it->second;
  if (!group.queued.empty() || group.on_wire > 0) return;
  if (group.policy->Complete()) {
    wakes_.erase(it->first);
    groups_.erase(it);
    return;
  }
  if (!group.idle) {
    group.idle = true;
    group.idle_position = idle_.insert(idle_.end(), it->first);
    EvictIdle();
  }
}

void Scheduler::EvictIdle() {
  while (idle_.size() > options_.max_idle_groups) {
    wakes_.erase(idle_.front());
    groups_.erase(idle_.front());
    idle_.pop_front();
  }
}

uint64_t Scheduler::RecordBypassed(TransferRecord record) {
  std::lock_guard<std::mutex> lock(mu_);
  ++counters_.bypassed_tasks;
  counters_.bypassed_bytes += record.bytes;
  return trace_.Append(std::move(record));
}

void Scheduler::FinishBypassed(uint64_t number, int64_t now_us) {
  std::lock_guard<std::mutex> lock(mu_);
  if (TransferRecord* record = trace_.Find(number)) record->released_us = now_us;
}

Counters Scheduler::counters() const {
  std::lock_guard<std::mutex> lock(mu_);
  Counters result = counters_;
  result.groups = static_cast<int64_t>(groups_.size());
  return result;
}

std::vector<TransferRecord> Scheduler::Trace() const {
  std::lock_guard<std::mutex> lock(mu_);
  return trace_.Snapshot();
}

void Scheduler::ClearTrace() {
  std::lock_guard<std::mutex> lock(mu_);
  trace_.Clear();
}

}  // namespace tfsched
