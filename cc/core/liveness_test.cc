// Nothing waits for ever: thousands of random schedules under a virtual clock, with all that goes wrong in a cluster.
#include <algorithm>
#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/core/scheduler.h"
#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

// What goes wrong in a schedule.
struct Faults {
  bool missing = false;     // ranks that never come
  bool duplicates = false;  // ranks that come twice
  bool ended_steps = false;
  bool configured = false;  // the policy, the credit and the rate are changed in between
};

struct Submitted {
  GroupSpec spec;
  int rank = 0;
  int64_t bytes = 0;
  int64_t ready_us = -1;
  int64_t on_wire_us = 0;  // how long gRPC holds its bytes
  int starts = 0;
  int64_t started_us = -1;
  bool dropped = false;
  bool on_wire = false;  // and its step has not ended since
};

class Schedule {
 public:
  Schedule(uint32_t seed, const Faults& faults)
      : random_(seed), faults_(faults), grace_us_(Draw(1, 3000)), scheduler_(Options()) {
    Generate();
    Run();
  }

  void Check() {
    const Counters before = scheduler_.counters();
    EXPECT_EQ(before.queue_depth, 0);
    EXPECT_EQ(before.on_wire_bytes, 0);
    EXPECT_EQ(before.tasks + before.dropped, static_cast<int64_t>(tasks_.size()));
    if (!faults_.missing && !faults_.duplicates && !faults_.ended_steps && !faults_.configured) {
      EXPECT_EQ(before.groups, 0) << "a step in which everything comes frees itself";
    }
    for (const int64_t step : steps_) scheduler_.EndStep(step, now_us_);
    EXPECT_TRUE(PollAt(&scheduler_, now_us_).empty());
    EXPECT_EQ(scheduler_.counters().groups, 0);

    if (faults_.configured) return CheckAll();
    std::map<std::string, std::vector<const Submitted*>> groups;
    for (const auto& entry : tasks_) groups[KeyOf(entry.second.spec)].push_back(&entry.second);
    for (const auto& group : groups) CheckGroup(group.second);
  }

 private:
  enum Kind { kArrival, kRelease, kEndStep, kConfigure };
  using Event = std::tuple<int64_t, int64_t, Kind, uint64_t>;  // when, tie-breaker, what, about which task or step

  int64_t Draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool Chance(int percent) { return Draw(1, 100) <= percent; }
  // What the scheduler must do with a transfer now: the tag's policy, unless it is overridden; an unknown one is fifo.
  std::string PolicyOf(const GroupSpec& spec) const {
    const std::string policy = policy_ == "graph" ? spec.policy : policy_;
    return policy == "unknown" ? "fifo" : policy;
  }
  // The group: only under tictac are steps apart.
  std::string KeyOf(const GroupSpec& spec) const {
    const std::string policy = PolicyOf(spec), step = policy == "tictac" ? std::to_string(spec.step_id) : "";
    return step + spec.sender + spec.receiver + policy;
  }
  SchedulerOptions Options() const {
    SchedulerOptions options;
    options.grace_us = grace_us_;
    options.trace_capacity = 8;
    return options;
  }
  void At(int64_t when_us, Kind kind, uint64_t what) { events_.emplace(when_us, next_tie_++, kind, what); }

  void Generate() {
    const int64_t span_us = Draw(1, 20000), longest_us = Draw(0, 2000);
    for (auto& credit_bytes : credits_) credit_bytes = Chance(30) ? 0 : Draw(1, 300);
    for (int64_t change = 0, changes = faults_.configured ? Draw(1, 6) : 0; change < changes; ++change) {
      At(Draw(0, span_us + 5000), kConfigure, 0);
    }
    for (int64_t step = 1, steps = Draw(1, 3); step <= steps; ++step) {
      steps_.push_back(step);
      if (faults_.ended_steps && Chance(50)) At(Draw(0, span_us + 5000), kEndStep, static_cast<uint64_t>(step));
      for (int64_t group = 0, groups = Draw(1, 3); group < groups; ++group) {
        GroupSpec spec;
        spec.step_id = step;
        spec.receiver = "w" + std::to_string(group);
        spec.sender = "ps" + std::to_string(Draw(0, 1));
        spec.policy = kPolicies[Draw(0, 7)];
        spec.count = static_cast<int>(Draw(1, 12));
        spec.credit_bytes = credits_[group];  // the same in all steps, for groups may span them
        for (int rank = 0; rank < spec.count; ++rank) {
          if (faults_.missing && Chance(25)) continue;
          for (int copy = faults_.duplicates && Chance(15) ? 2 : 1; copy > 0; --copy) {
            Submitted task;
            task.spec = spec;
            task.rank = rank;
            task.bytes = Chance(10) ? 0 : Draw(1, 200);
            task.on_wire_us = Chance(20) ? 0 : Draw(0, longest_us);
            planned_.push_back(task);
            At(Draw(0, span_us), kArrival, planned_.size() - 1);
          }
        }
      }
    }
  }

  // Drives the scheduler exactly as its contract says: Poll after every event and at the time that Poll returned.
  void Run() {
    int64_t wake_us = kNever;
    for (int polls = 0; !events_.empty() || wake_us != kNever; ++polls) {
      ASSERT_LT(polls, 100000) << "the scheduler asks to be woken for ever";
      if (!events_.empty() && std::get<0>(events_.top()) <= wake_us) {
        const Event event = events_.top();
        events_.pop();
        now_us_ = std::get<0>(event);
        Apply(std::get<2>(event), std::get<3>(event));
        // Events of one moment may share a poll, as they do when the dispatcher's thread is busy.
        if (!events_.empty() && std::get<0>(events_.top()) == now_us_ && Chance(50)) continue;
      } else {
        ASSERT_GT(wake_us, now_us_) << "a wake that is not in the future is a busy loop";
        now_us_ = wake_us;
      }
      wake_us = Poll();
      if (::testing::Test::HasFailure()) return;
    }
  }

  void Apply(Kind kind, uint64_t what) {
    switch (kind) {
      case kArrival: {
        Submitted task = planned_[what];
        task.ready_us = now_us_;
        const uint64_t id = scheduler_.Submit(TaskOf(task.spec, task.rank, task.bytes), now_us_);
        last_cause_us_ = now_us_;
        ASSERT_TRUE(tasks_.emplace(id, task).second) << "ids are unique";
        break;
      }
      case kRelease: {
        scheduler_.Finish(what, now_us_);
        tasks_.at(what).on_wire = false;
        break;
      }
      case kEndStep: {
        const int64_t step = static_cast<int64_t>(what);
        scheduler_.EndStep(step, now_us_);
        for (auto& entry : tasks_) {
          if (entry.second.spec.step_id != step) continue;
          if (entry.second.starts == 0) to_drop_.insert(entry.first);
          entry.second.on_wire = false;
        }
        break;
      }
      case kConfigure: {
        OverridesChange change;
        if (Chance(60)) change.policy = policy_ = kChoices[Draw(0, 5)];
        if (Chance(40)) change.credit_bytes = credit_bytes_ = Chance(30) ? kGraphCredit : Draw(0, 300);
        if (Chance(40)) change.rate_bps = Chance(40) ? 0 : kSlowestBps * Draw(1, 50);
        ASSERT_TRUE(scheduler_.Configure(change, now_us_));
        EXPECT_EQ(scheduler_.overrides().policy, policy_);
        EXPECT_EQ(scheduler_.overrides().credit_bytes, credit_bytes_);
        last_cause_us_ = now_us_;
        break;
      }
    }
  }

  int64_t Poll() {
    std::vector<Start> starts;
    const int64_t wake_us = scheduler_.Poll(now_us_, &starts);
    for (const Start& start : starts) {
      const uint64_t id = start.task.id;
      Submitted& task = tasks_.at(id);
      ++task.starts;
      task.started_us = now_us_;
      task.dropped = start.dropped;
      EXPECT_EQ(task.starts, 1) << "started twice";
      EXPECT_EQ(start.dropped, to_drop_.count(id) == 1);
      if (start.dropped) continue;
      CheckStart(id, task);
      task.on_wire = true;
      At(now_us_ + task.on_wire_us, kRelease, id);
    }
    return wake_us;
  }

  // Against an account that knows nothing but the tasks: which of its group wait and which are on the wire.
  void CheckStart(uint64_t id, const Submitted& task) const {
    const std::string policy = PolicyOf(task.spec);
    const int64_t credit_bytes = credit_bytes_ == kGraphCredit ? task.spec.credit_bytes : credit_bytes_;
    int64_t on_wire_bytes = 0;
    int on_wire = 0;
    for (const auto& entry : tasks_) {
      const Submitted& other = entry.second;
      if (!other.on_wire && (other.starts > 0 || to_drop_.count(entry.first) != 0)) continue;
      if (other.spec.sender != task.spec.sender || other.spec.receiver != task.spec.receiver) continue;
      // The group: only under tictac are steps apart.
      if (policy == "tictac" && other.spec.step_id != task.spec.step_id) continue;
      if (PolicyOf(other.spec) != policy) continue;
      if (other.on_wire) {
        ++on_wire;
        on_wire_bytes += other.bytes;
      } else if (policy == "fifo") {
        EXPECT_GT(entry.first, id) << "in order of arrival";
      } else {
        EXPECT_GT(std::make_pair(other.rank, entry.first), std::make_pair(task.rank, id))
            << policy << ": of what is there, the lowest rank goes, equal ones by arrival";
      }
    }
    if (on_wire == 0) return;  // one may always go
    EXPECT_NE(policy, "p3") << "one at a time";
    if (credit_bytes == 0) return;
    if (policy == "tictac") {
      EXPECT_LT(on_wire_bytes, credit_bytes);
    }
    if (policy == "bytescheduler" || policy == "prophet") {
      EXPECT_LE(on_wire_bytes + task.bytes, credit_bytes);
    }
  }

  // Whatever was changed, everything starts within the time that the traffic, the slowest rate and the grace need.
  void CheckAll() const {
    int64_t wire_us = 0, bytes = 0;
    for (const auto& entry : tasks_) {
      if (entry.second.dropped) continue;
      wire_us += entry.second.on_wire_us;
      bytes += entry.second.bytes;
    }
    for (const auto& entry : tasks_) {
      ASSERT_EQ(entry.second.starts, 1);
      EXPECT_LE(entry.second.started_us, last_cause_us_ + grace_us_ + wire_us + bytes * 8000000 / kSlowestBps + 1);
    }
  }

  // Every task starts, once, within a time that depends on nothing but the group's own traffic and the grace.
  void CheckGroup(const std::vector<const Submitted*>& group) const {
    int64_t last_arrival_us = 0, wire_us = 0;
    for (const Submitted* task : group) {
      last_arrival_us = std::max(last_arrival_us, task->ready_us);
      if (!task->dropped) wire_us += task->on_wire_us;
    }
    for (const Submitted* task : group) {
      ASSERT_EQ(task->starts, 1);
      const int64_t arrivals_after = std::count_if(group.begin(), group.end(), [task](const Submitted* other) {
        return other->ready_us >= task->ready_us;  // counts the task itself: the first grace
      });
      EXPECT_LE(task->started_us, task->ready_us + arrivals_after * grace_us_ + wire_us);
      EXPECT_LE(task->started_us, last_arrival_us + grace_us_ + wire_us);
    }
  }

  static constexpr int64_t kSlowestBps = 1000000;  // a byte takes 8 us
  static constexpr const char* kPolicies[] = {"tictac", "tictac",  "tictac", "bytescheduler",
                                              "p3",     "prophet", "fifo",   "unknown"};
  static constexpr const char* kChoices[] = {"graph", "tictac", "bytescheduler", "p3", "prophet", "fifo"};

  std::mt19937 random_;
  const Faults faults_;
  const int64_t grace_us_;
  Scheduler scheduler_;
  int64_t now_us_ = 0;
  int64_t next_tie_ = 0;
  std::vector<int64_t> steps_;
  std::vector<Submitted> planned_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  std::map<uint64_t, Submitted> tasks_;
  std::string policy_ = "graph";
  int64_t credit_bytes_ = kGraphCredit;
  int64_t credits_[3] = {};    // by receiver
  int64_t last_cause_us_ = 0;  // the last arrival or change
  std::set<uint64_t> to_drop_;
};

void RunSchedules(const Faults& faults) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr uint32_t kSchedules = 800;  // each takes ten times as long
#else
  constexpr uint32_t kSchedules = 4000;
#endif
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(seed, faults);
    if (!::testing::Test::HasFailure()) schedule.Check();
    if (::testing::Test::HasFailure()) return;  // the first failing seed says enough
  }
}

TEST(LivenessTest, WhenEverythingComes) { RunSchedules(Faults()); }

TEST(LivenessTest, WhenRanksAreMissing) {
  Faults faults;
  faults.missing = true;
  RunSchedules(faults);
}

TEST(LivenessTest, WhenTransfersComeTwice) {
  Faults faults;
  faults.duplicates = true;
  RunSchedules(faults);
}

TEST(LivenessTest, WhenStepsEndInBetween) {
  Faults faults;
  faults.ended_steps = true;
  RunSchedules(faults);
}

TEST(LivenessTest, WhenAllOfThatHappens) {
  Faults faults;
  faults.missing = faults.duplicates = faults.ended_steps = true;
  RunSchedules(faults);
}

TEST(LivenessTest, WhenTheSchedulerIsChanged) {
  Faults faults;
  faults.configured = true;
  RunSchedules(faults);
}

TEST(LivenessTest, WhenTheSchedulerIsChangedAndAllOfThatHappens) {
  Faults faults;
  faults.missing = faults.duplicates = faults.ended_steps = faults.configured = true;
  RunSchedules(faults);
}

}  // namespace
}  // namespace tfsched
