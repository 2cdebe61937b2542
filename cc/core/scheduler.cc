// The scheduler: groups of tasks, their policies, counters and trace.
#include "cc/core/scheduler.h"

#include <algorithm>
#include <set>
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

// What a task with an unknown policy runs under. Never destroyed, as the scheduler of a process is not.
const std::string& Fallback() {
  static const auto* name = new std::string("fifo");
  return *name;
}

}  // namespace

Scheduler::GroupKey Scheduler::KeyOf(const CommTask& task) const {
  const bool overridden = task.info->rank >= 0 && overrides_.policy != kGraphPolicy;
  const std::string& wanted = overridden ? overrides_.policy : task.info->policy;
  const std::string& policy = HasPolicy(wanted) ? wanted : Fallback();
  const PolicySpan span = SpanOf(policy);
  return GroupKey(span, span == PolicySpan::kStep ? task.step_id : 0, task.sender, task.info->receiver, policy);
}

Patience::Link Scheduler::LinkOf(const GroupKey& key) { return Patience::Link(std::get<2>(key), std::get<3>(key)); }

Scheduler::Group& Scheduler::GroupFor(const GroupKey& key, const CommTask& task, bool midway, int64_t now_us) {
  auto it = groups_.find(key);
  if (it == groups_.end()) {
    it = groups_.emplace(key, Group()).first;
    Group& group = it->second;
    group.serial = next_serial_++;
    group.use = link_use_.Of(LinkOf(key));
    group.tagged_credit_bytes = task.info->credit_bytes;
    group.first_us = now_us;
    group.midway = midway;
    PolicyOptions options;
    options.count = task.info->count;
    options.credit_bytes = CreditOf(group);
    options.grace_us = patience_.GraceUs(LinkOf(key), options_.grace_us);
    options.quick_us = options_.quick_us;
    options.midway = midway;
    options.sender = task.sender;
    options.pace = &pace_;
    options.profile = [profiles = &profiles_, link = LinkOf(key)] { return profiles->Of(link); };
    group.policy = MakePolicy(std::get<4>(key), options);
  } else if (it->second.tagged_credit_bytes != task.info->credit_bytes) {
    // Graphs with different credits share the group; the newest one's holds.
    it->second.tagged_credit_bytes = task.info->credit_bytes;
    it->second.policy->SetCreditBytes(CreditOf(it->second));
  }
  return it->second;
}

int64_t Scheduler::CreditOf(const Group& group) const {
  return overrides_.credit_bytes == kGraphCredit ? group.tagged_credit_bytes : overrides_.credit_bytes;
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
  const MutexLock lock(&mu_);
  latest_us_ = std::max(latest_us_, now_us);
  const uint64_t id = task.id = next_id_++;
  Enqueue(std::move(task), now_us, /*midway=*/false);
  ++counters_.queue_depth;
  counters_.max_queue_depth = std::max(counters_.max_queue_depth, counters_.queue_depth);
  return id;
}

void Scheduler::Enqueue(CommTask task, int64_t now_us, bool midway) {
  const GroupKey key = KeyOf(task);
  Group& group = GroupFor(key, task, midway, now_us);
  Touch(key, &group);
  group.policy->Add(task, now_us);
  group.arrival.emplace(task.id, task.info->rank);
  // Ranks of different steps say nothing about each other.
  if (std::get<0>(key) == PolicySpan::kStep && task.info->rank < group.highest_started) ++counters_.late;
  const uint64_t id = task.id;
  group.queued.emplace(id, std::move(task));
}

void Scheduler::Finish(uint64_t id, int64_t now_us) {
  const MutexLock lock(&mu_);
  latest_us_ = std::max(latest_us_, now_us);
  auto wire = on_wire_.find(id);
  if (wire == on_wire_.end()) return;
  const CommTask& task = wire->second.task;
  if (TransferRecord* record = trace_.Find(wire->second.record)) record->released_us = now_us;
  counters_.on_wire_bytes -= task.bytes;
  pace_.Released(task.sender, task.bytes, now_us);
  link_use_.Released(wire->second.use, task.bytes, now_us);
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
  const MutexLock lock(&mu_);
  latest_us_ = std::max(latest_us_, now_us);
  profiles_.StepEnded(step_id);
  EndStepAcross(step_id, now_us);
  auto it = groups_.lower_bound(GroupKey(PolicySpan::kStep, step_id, std::string(), std::string(), std::string()));
  while (it != groups_.end() && std::get<0>(it->first) == PolicySpan::kStep && std::get<1>(it->first) == step_id) {
    DropQueued(&it->second);
    Learn(*it, now_us);
    if (it->second.idle) idle_.erase(it->second.idle_position);
    wakes_.erase(it->first);
    it = groups_.erase(it);
  }
}

// The step's tasks in groups that outlive it.
void Scheduler::EndStepAcross(int64_t step_id, int64_t now_us) {
  auto it = groups_.lower_bound(GroupKey(PolicySpan::kAllSteps, 0, std::string(), std::string(), std::string()));
  if (it == groups_.end()) return;
  for (auto& entry : on_wire_) {
    OnWire& wire = entry.second;
    if (wire.task.step_id != step_id || wire.group_serial == 0) continue;
    const auto owner = groups_.find(KeyOf(wire.task));
    if (owner == groups_.end() || std::get<0>(owner->first) != PolicySpan::kAllSteps) continue;
    Group& group = owner->second;
    if (group.serial != wire.group_serial) continue;
    Touch(owner->first, &group);
    group.policy->Finished(wire.task, now_us);
    --group.on_wire;
    wire.group_serial = 0;
  }
  for (; it != groups_.end(); ++it) {
    Group& group = it->second;
    std::vector<uint64_t> ended;
    for (const auto& arrival : group.arrival) {
      if (group.queued.at(arrival.first).step_id == step_id) ended.push_back(arrival.first);
    }
    for (const uint64_t id : ended) {
      group.policy->Remove(group.queued.at(id), now_us);
      Drop(&group, id);
    }
    if (!ended.empty()) Touch(it->first, &group);
  }
}

bool Scheduler::Configure(const OverridesChange& change, int64_t now_us) {
  const MutexLock lock(&mu_);
  latest_us_ = std::max(latest_us_, now_us);
  if (change.policy && *change.policy != kGraphPolicy && !HasPolicy(*change.policy)) return false;
  if (change.rate_bps && *change.rate_bps != overrides_.rate_bps) {
    overrides_.rate_bps = *change.rate_bps;
    if (overrides_.rate_bps == 0) buckets_.clear();
    for (auto& bucket : buckets_) bucket.second.SetRate(overrides_.rate_bps, now_us);
  }
  if (change.credit_bytes) overrides_.credit_bytes = *change.credit_bytes;
  const bool regroup = change.policy && *change.policy != overrides_.policy;
  if (regroup) {
    overrides_.policy = *change.policy;
    Regroup(now_us);
  }
  for (auto& entry : groups_) {
    entry.second.policy->SetCreditBytes(CreditOf(entry.second));
    Touch(entry.first, &entry.second);
  }
  return true;
}

// Makes every group anew under the overrides in force: the new policies know what is on the wire and get what is queued in
// the order of arrival.
void Scheduler::Regroup(int64_t now_us) {
  std::map<uint64_t, CommTask> queued;
  std::set<uint64_t> serials;
  for (auto& entry : groups_) {
    serials.insert(entry.second.serial);
    for (auto& task : entry.second.queued) queued.emplace(task.first, std::move(task.second));
  }
  groups_.clear();
  idle_.clear();
  wakes_.clear();
  dirty_.clear();
  std::map<uint64_t, OnWire*> on_wire;  // in order of arrival, so that the same events give the same order again
  for (auto& entry : on_wire_) {
    if (serials.count(entry.second.group_serial) != 0) on_wire.emplace(entry.first, &entry.second);
  }
  for (const auto& entry : on_wire) {
    const CommTask& task = entry.second->task;
    const GroupKey key = KeyOf(task);
    Group& group = GroupFor(key, task, /*midway=*/true, now_us);
    Touch(key, &group);
    group.policy->Adopt(task, now_us);
    ++group.on_wire;
    group.highest_started = std::max(group.highest_started, task.info->rank);
    entry.second->group_serial = group.serial;
  }
  const int64_t late = counters_.late;
  for (auto& task : queued) Enqueue(std::move(task.second), now_us, /*midway=*/true);
  counters_.late = late;  // each was looked at when it came
}

Overrides Scheduler::overrides() const {
  const MutexLock lock(&mu_);
  return overrides_;
}

TokenBucket* Scheduler::BucketFor(const GroupKey& key) {
  if (overrides_.rate_bps == 0) return nullptr;
  return &buckets_.emplace(LinkOf(key), TokenBucket(overrides_.rate_bps)).first->second;
}

void Scheduler::DropAll(std::vector<Start>* starts) {
  const MutexLock lock(&mu_);
  for (auto& entry : groups_) DropQueued(&entry.second);
  groups_.clear();
  idle_.clear();
  wakes_.clear();
  for (auto& drop : pending_drops_) starts->push_back(std::move(drop));
  pending_drops_.clear();
}

void Scheduler::Drop(Group* group, uint64_t id) {
  auto queued = group->queued.find(id);
  TransferRecord record = RecordOf(queued->second);
  record.dropped = true;
  trace_.Append(std::move(record));
  ++counters_.dropped;
  --counters_.queue_depth;
  pending_drops_.push_back(Start{std::move(queued->second), true});
  group->queued.erase(queued);
  group->arrival.erase(id);
}

void Scheduler::DropQueued(Group* group) {
  while (!group->arrival.empty()) Drop(group, group->arrival.begin()->first);
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
  pace_.Started(task.sender, task.bytes, now_us);
  link_use_.Started(group->use, task.bytes, now_us);
  if (task.info->rank >= 0) counters_.credit_bytes = CreditOf(*group);
  --counters_.queue_depth;
  TransferRecord record = RecordOf(task);
  record.started_us = now_us;
  OnWire wire;
  wire.group_serial = group->serial;
  wire.use = group->use;
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
  const MutexLock lock(&mu_);
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
    TokenBucket* bucket = BucketFor(key);
    int64_t wake_at = kNever;
    while (true) {
      if (bucket != nullptr && !group.queued.empty() && now_us < bucket->ReadyAtUs()) {
        wake_at = bucket->ReadyAtUs();
        break;
      }
      const uint64_t id = group.policy->Next(now_us);
      if (id == 0) {
        wake_at = group.policy->WakeAtUs();
        break;
      }
      if (bucket != nullptr) bucket->Take(group.queued.at(id).bytes, now_us);
      StartTask(&group, id, now_us, starts);
    }
    counters_.step_asides += group.policy->step_asides() - group.step_asides_seen;
    group.step_asides_seen = group.policy->step_asides();
    if (wake_at == kNever) {
      wakes_.erase(key);
    } else {
      wakes_[key] = wake_at;
    }
    FreeIfDone(it, now_us);
  }
  int64_t wake_at = kNever;
  for (const auto& wake : wakes_) wake_at = std::min(wake_at, wake.second);
  return wake_at;
}

void Scheduler::FreeIfDone(Groups::iterator it, int64_t now_us) {
  Group& group = it->second;
  if (!group.queued.empty() || group.on_wire > 0) return;
  if (group.policy->Complete()) {
    Learn(*it, now_us);
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

// What a step that ends tells of its link.
void Scheduler::Learn(const Groups::value_type& ended, int64_t now_us) {
  const Group& group = ended.second;
  if (std::get<0>(ended.first) != PolicySpan::kStep || group.midway) return;
  if (group.policy->Complete() && group.policy->step_asides() == 0) {
    patience_.Whole(LinkOf(ended.first), now_us - group.first_us);
  } else {
    patience_.Broken(LinkOf(ended.first));
  }
}

void Scheduler::EvictIdle() {
  while (idle_.size() > options_.max_idle_groups) {
    const auto it = groups_.find(idle_.front());
    Learn(*it, latest_us_);
    wakes_.erase(it->first);
    groups_.erase(it);
    idle_.pop_front();
  }
}

uint64_t Scheduler::RecordBypassed(TransferRecord record) {
  const MutexLock lock(&mu_);
  ++counters_.bypassed_tasks;
  counters_.bypassed_bytes += record.bytes;
  return trace_.Append(std::move(record));
}

void Scheduler::FinishBypassed(uint64_t number, int64_t now_us) {
  const MutexLock lock(&mu_);
  if (TransferRecord* record = trace_.Find(number)) record->released_us = now_us;
}

int64_t Scheduler::PaceBps(const std::string& sender) const {
  const MutexLock lock(&mu_);
  return pace_.Bps(sender);
}

int64_t Scheduler::SlowestPaceBps() const {
  const MutexLock lock(&mu_);
  return pace_.SlowestBps();
}

Counters Scheduler::counters() const {
  const MutexLock lock(&mu_);
  Counters result = counters_;
  result.groups = static_cast<int64_t>(groups_.size());
  result.sending_us = link_use_.sending_us();
  result.wire_byte_seconds = link_use_.byte_seconds();
  return result;
}

std::vector<TransferRecord> Scheduler::Trace() const {
  const MutexLock lock(&mu_);
  return trace_.Snapshot();
}

void Scheduler::ClearTrace() {
  const MutexLock lock(&mu_);
  trace_.Clear();
}

}  // namespace tfsched
