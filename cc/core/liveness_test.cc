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
};

// An independent account of what the core must hold at any time: per group, what waits and what is on the wire.
struct Model {
  std::set<std::pair<int, uint64_t>> waiting;  // (rank, id)
  int64_t on_wire_bytes = 0;
  int on_wire = 0;
  int generation = 0;  // counts the ends of its step
  int64_t step_id = 0;
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
    if (!faults_.missing && !faults_.duplicates && !faults_.ended_steps) {
      EXPECT_EQ(before.groups, 0) << "a step in which everything comes frees itself";
    }
    for (const int64_t step : steps_) scheduler_.EndStep(step, now_us_);
    EXPECT_TRUE(PollAt(&scheduler_, now_us_).empty());
    EXPECT_EQ(scheduler_.counters().groups, 0);

    std::map<std::string, std::vector<const Submitted*>> groups;
    for (const auto& entry : tasks_) groups[KeyOf(entry.second.spec)].push_back(&entry.second);
    for (const auto& group : groups) CheckGroup(group.second);
  }

 private:
  enum Kind { kArrival, kRelease, kEndStep };
  using Event = std::tuple<int64_t, int64_t, Kind, uint64_t>;  // when, tie-breaker, what, about which task or step

  int64_t Draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool Chance(int percent) { return Draw(1, 100) <= percent; }
  static std::string KeyOf(const GroupSpec& spec) {
    return std::to_string(spec.step_id) + spec.sender + spec.receiver + spec.policy;
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
    for (int64_t step = 1, steps = Draw(1, 3); step <= steps; ++step) {
      steps_.push_back(step);
      if (faults_.ended_steps && Chance(50)) At(Draw(0, span_us + 5000), kEndStep, static_cast<uint64_t>(step));
      for (int64_t group = 0, groups = Draw(1, 3); group < groups; ++group) {
        GroupSpec spec;
        spec.step_id = step;
        spec.receiver = "w" + std::to_string(group);
        spec.sender = "ps" + std::to_string(Draw(0, 1));
        spec.policy = Chance(80) ? "tictac" : Chance(50) ? "fifo" : "unknown";
        spec.count = static_cast<int>(Draw(1, 12));
        spec.credit_bytes = Chance(30) ? 0 : Draw(1, 300);
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
        Model& model = models_[KeyOf(task.spec)];
        model.step_id = task.spec.step_id;
        model.waiting.emplace(task.rank, id);
        ASSERT_TRUE(tasks_.emplace(id, task).second) << "ids are unique";
        break;
      }
      case kRelease: {
        scheduler_.Finish(what, now_us_);
        const auto wire = wire_.find(what);
        Model& model = models_[KeyOf(tasks_.at(what).spec)];
        if (wire->second == model.generation) {
          model.on_wire_bytes -= tasks_.at(what).bytes;
          --model.on_wire;
        }
        wire_.erase(wire);
        break;
      }
      case kEndStep: {
        const int64_t step = static_cast<int64_t>(what);
        scheduler_.EndStep(step, now_us_);
        for (auto& entry : models_) {
          if (entry.second.step_id != step) continue;
          for (const auto& waiting : entry.second.waiting) to_drop_.insert(waiting.second);
          entry.second.waiting.clear();
          entry.second.on_wire = 0;
          entry.second.on_wire_bytes = 0;
          ++entry.second.generation;
        }
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
      Model& model = models_[KeyOf(task.spec)];
      if (task.spec.policy == "tictac") {
        EXPECT_EQ(model.waiting.begin()->second, id) << "of what is there, the lowest rank goes, equal ones by arrival";
        EXPECT_TRUE(task.spec.credit_bytes == 0 || model.on_wire == 0 || model.on_wire_bytes < task.spec.credit_bytes)
            << model.on_wire_bytes << " bytes were on the wire, the credit is " << task.spec.credit_bytes;
      }
      model.waiting.erase({task.rank, id});
      model.on_wire_bytes += task.bytes;
      ++model.on_wire;
      wire_[id] = model.generation;
      At(now_us_ + task.on_wire_us, kRelease, id);
    }
    return wake_us;
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
  std::map<std::string, Model> models_;
  std::map<uint64_t, int> wire_;  // task on the wire -> the generation of its group
  std::set<uint64_t> to_drop_;
};

void RunSchedules(const Faults& faults) {
  constexpr uint32_t kSchedules = 4000;
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

}  // namespace
}  // namespace tfsched
