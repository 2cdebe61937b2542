// The queue of transfers: groups them, asks each group's policy, keeps counters and the trace. No threads, no clock.
#ifndef TFSCHED_CC_CORE_SCHEDULER_H_
#define TFSCHED_CC_CORE_SCHEDULER_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/core/comm_task.h"
#include "cc/core/overrides.h"
#include "cc/core/patience.h"
#include "cc/core/policy.h"
#include "cc/core/token_bucket.h"
#include "cc/core/trace_ring.h"

namespace tfsched {

struct SchedulerOptions {
  int64_t grace_us = 5000;  // how long an idle wire waits for a missing rank, at least (see Patience)
  int64_t quick_us = 0;     // p3: what leaves within that time did not wait for the link; 0: stop-and-wait on any link
  size_t trace_capacity = 16384;
  // Groups that wait for transfers which may never come, of steps whose end was never announced. The oldest go first.
  size_t max_idle_groups = 1024;
};

struct Counters {
  int64_t tasks = 0;  // ordered transfers handed over
  int64_t bytes = 0;
  int64_t bypassed_tasks = 0;  // untagged transfers, never queued
  int64_t bypassed_bytes = 0;
  int64_t queue_depth = 0;      // now
  int64_t max_queue_depth = 0;  // ever
  int64_t on_wire_bytes = 0;    // handed over and not yet released
  int64_t reorderings = 0;      // tasks that overtook one which was ready before them
  int64_t late = 0;             // tasks that came after a higher rank of their step had gone, under policies that wait
  int64_t step_asides = 0;      // times that a missing rank was given up
  int64_t dropped = 0;          // tasks still queued when their step ended
  int64_t groups = 0;           // groups with state, see Scheduler::GroupKey
};

// A task that the caller has to start, outside of the scheduler's lock and in the order given.
struct Start {
  CommTask task;
  bool dropped = false;
};

// Thread safe. Time is passed in, never read, so the same object runs in production and under a simulator's virtual clock.
// The owner calls Poll() after Submit, Finish, EndStep and Configure and when the time Poll() returned has come.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options) : options_(options), trace_(options.trace_capacity) {}

  // notify_ready: queues `task`; returns its id, never 0. A task whose policy is unknown runs under fifo.
  uint64_t Submit(CommTask task, int64_t now_us);

  // notify_finish: the wire has released the task. Unknown ids are ignored, for a step may have ended in between.
  void Finish(uint64_t id, int64_t now_us);

  // Nobody waits for the transfers of the step any more: drops what is queued and frees its state. What is on the wire no
  // longer counts against anybody's credit, for a dead receiver's bytes may be held for long.
  void EndStep(int64_t step_id, int64_t now_us);

  // Changes what the tags say, for all ordered transfers that start from now on; queued ones move over in their order.
  // False, and nothing is changed, if no policy has that name.
  bool Configure(const OverridesChange& change, int64_t now_us);
  Overrides overrides() const;

  // Ends every step, for the end of the process.
  void DropAll(std::vector<Start>* starts);

  // Appends what has to be started now to `starts`; returns when to call again at the latest (kNever if only events matter).
  int64_t Poll(int64_t now_us, std::vector<Start>* starts);

  // Records a transfer that was never queued. Returns a number for FinishBypassed.
  uint64_t RecordBypassed(TransferRecord record);
  void FinishBypassed(uint64_t number, int64_t now_us);

  Counters counters() const;
  std::vector<TransferRecord> Trace() const;
  void ClearTrace();

 private:
  // Span, step (0 where the policy spans steps), sender, receiver, policy. The sender, because one process may run several
  // tasks, each with ranks of its own; the policy, because graphs may differ, and an emulated link also queues transfers
  // that no policy was asked to order.
  using GroupKey = std::tuple<PolicySpan, int64_t, std::string, std::string, std::string>;
  struct Group {
    uint64_t serial = 0;  // tells a group from a later one with the same key
    std::unique_ptr<Policy> policy;
    std::unordered_map<uint64_t, CommTask> queued;
    std::map<uint64_t, int> arrival;  // queued task id -> rank, oldest first
    int64_t on_wire = 0;
    int highest_started = -1;
    int64_t tagged_credit_bytes = 0;  // what the newest tag says
    int64_t step_asides_seen = 0;
    int64_t first_us = 0;  // when its first task came
    bool midway = false;   // began in the middle of its step
    std::list<GroupKey>::iterator idle_position;
    bool idle = false;
    bool dirty = false;  // something happened since its policy was last asked
  };
  struct OnWire {
    CommTask task;
    uint64_t record = 0;
    uint64_t group_serial = 0;  // 0: its step has ended
  };
  using Groups = std::map<GroupKey, Group>;

  GroupKey KeyOf(const CommTask& task) const;
  static Patience::Link LinkOf(const GroupKey& key);
  Group& GroupFor(const GroupKey& key, const CommTask& task, bool midway, int64_t now_us);
  void Enqueue(CommTask task, int64_t now_us, bool midway);
  int64_t CreditOf(const Group& group) const;
  TokenBucket* BucketFor(const GroupKey& key);
  void Regroup(int64_t now_us);
  void EndStepAcross(int64_t step_id, int64_t now_us);
  void Touch(const GroupKey& key, Group* group);
  void StartTask(Group* group, uint64_t id, int64_t now_us, std::vector<Start>* starts);
  void FreeIfDone(Groups::iterator it, int64_t now_us);
  void Drop(Group* group, uint64_t id);
  void DropQueued(Group* group);
  void Learn(const Groups::value_type& ended, int64_t now_us);
  void EvictIdle();

  const SchedulerOptions options_;
  mutable std::mutex mu_;
  uint64_t next_id_ = 1;
  uint64_t next_serial_ = 1;
  int64_t latest_us_ = 0;  // the latest event
  Overrides overrides_;
  Groups groups_;
  std::map<std::pair<std::string, std::string>, TokenBucket> buckets_;  // (sender, receiver), while there is a cap
  Patience patience_;
  std::vector<GroupKey> dirty_;
  std::map<GroupKey, int64_t> wakes_;  // groups whose policy waits for a moment
  std::list<GroupKey> idle_;           // oldest first
  std::unordered_map<uint64_t, OnWire> on_wire_;
  std::vector<Start> pending_drops_;
  Counters counters_;
  TraceRing trace_;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_SCHEDULER_H_
