// The queue of transfers: groups them, asks each group's policy, keeps counters and the trace. No threads, no clock.
#ifndef TFSCHED_CC_CORE_SCHEDULER_H_
#define TFSCHED_CC_CORE_SCHEDULER_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/core/comm_task.h"
#include "cc/core/link_use.h"
#include "cc/core/mutex.h"
#include "cc/core/overrides.h"
#include "cc/core/pace.h"
#include "cc/core/patience.h"
#include "cc/core/policy.h"
#include "cc/core/ready_profile.h"
#include "cc/core/thread_annotations.h"
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
  int64_t sending_us = 0;       // see LinkUse, as the next one
  int64_t wire_byte_seconds = 0;
  int64_t credit_bytes = -1;  // of the link that was handed a task last; 0: no limit; -1: none was
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

  // How fast the sender's ordered transfers leave it, or those of the slowest sender; 0 until that is known.
  int64_t PaceBps(const std::string& sender) const;
  int64_t SlowestPaceBps() const;

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
    LinkUse::Use* use = nullptr;
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
    LinkUse::Use* use = nullptr;
  };
  using Groups = std::map<GroupKey, Group>;

  GroupKey KeyOf(const CommTask& task) const TFSCHED_REQUIRES(mu_);
  static Patience::Link LinkOf(const GroupKey& key);
  Group& GroupFor(const GroupKey& key, const CommTask& task, bool midway, int64_t now_us) TFSCHED_REQUIRES(mu_);
  void Enqueue(CommTask task, int64_t now_us, bool midway) TFSCHED_REQUIRES(mu_);
  int64_t CreditOf(const Group& group) const TFSCHED_REQUIRES(mu_);
  TokenBucket* BucketFor(const GroupKey& key) TFSCHED_REQUIRES(mu_);
  void Regroup(int64_t now_us) TFSCHED_REQUIRES(mu_);
  void EndStepAcross(int64_t step_id, int64_t now_us) TFSCHED_REQUIRES(mu_);
  void Touch(const GroupKey& key, Group* group) TFSCHED_REQUIRES(mu_);
  void StartTask(Group* group, uint64_t id, int64_t now_us, std::vector<Start>* starts) TFSCHED_REQUIRES(mu_);
  void FreeIfDone(Groups::iterator it, int64_t now_us) TFSCHED_REQUIRES(mu_);
  void Drop(Group* group, uint64_t id) TFSCHED_REQUIRES(mu_);
  void DropQueued(Group* group) TFSCHED_REQUIRES(mu_);
  void Learn(const Groups::value_type& ended, int64_t now_us) TFSCHED_REQUIRES(mu_);
  void EvictIdle() TFSCHED_REQUIRES(mu_);

  const SchedulerOptions options_;
  mutable Mutex mu_;
  uint64_t next_id_ TFSCHED_GUARDED_BY(mu_) = 1;
  uint64_t next_serial_ TFSCHED_GUARDED_BY(mu_) = 1;
  int64_t latest_us_ TFSCHED_GUARDED_BY(mu_) = 0;  // the latest event
  Overrides overrides_ TFSCHED_GUARDED_BY(mu_);
  Groups groups_ TFSCHED_GUARDED_BY(mu_);
  // By sender and receiver, while there is a cap.
  std::map<std::pair<std::string, std::string>, TokenBucket> buckets_ TFSCHED_GUARDED_BY(mu_);
  Patience patience_ TFSCHED_GUARDED_BY(mu_);
  Pace pace_ TFSCHED_GUARDED_BY(mu_);
  LinkUse link_use_ TFSCHED_GUARDED_BY(mu_);
  ReadyProfiles profiles_ TFSCHED_GUARDED_BY(mu_);  // read and written by policies, under the lock
  std::vector<GroupKey> dirty_ TFSCHED_GUARDED_BY(mu_);
  std::map<GroupKey, int64_t> wakes_ TFSCHED_GUARDED_BY(mu_);  // groups whose policy waits for a moment
  std::list<GroupKey> idle_ TFSCHED_GUARDED_BY(mu_);           // oldest first
  std::unordered_map<uint64_t, OnWire> on_wire_ TFSCHED_GUARDED_BY(mu_);
  std::vector<Start> pending_drops_ TFSCHED_GUARDED_BY(mu_);
  Counters counters_ TFSCHED_GUARDED_BY(mu_);
  TraceRing trace_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_SCHEDULER_H_
