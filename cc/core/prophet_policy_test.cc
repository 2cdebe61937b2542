// Tests of the policy prophet: blocks that close in time, holds that end, and random training in which predictions fail.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/policy.h"
#include "cc/core/ready_profile.h"
#include "cc/core/scheduler.h"
#include "cc/core/testing.h"
#include "cc/core/virtual_link.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Order = std::vector<int>;

constexpr int64_t kMs = 1000;
constexpr int64_t kKb = 1000;  // a byte takes a hundredth of a µs: 1 kB is 10 us, 100 kB a millisecond
constexpr double kLinkBps = 800e6;
constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";

struct Gradient {
  int rank = 0;
  int64_t at_us = 0;  // from the step's beginning
  int64_t bytes = 0;
};

struct Sent {
  int rank = 0;
  int64_t ready_us = 0, delivered_us = 0;  // both from the step's beginning
};

// Steps of one worker on a virtual link, as far apart as they were asked for.
class Worker {
 public:
  explicit Worker(std::string policy, int64_t credit_bytes = 1000 * kKb)
      : link_(&clock_, SchedulerOptions(), kLinkBps, 0), policy_(std::move(policy)), credit_bytes_(credit_bytes) {}

  // In the order of delivery.
  std::vector<Sent> Step(const std::vector<Gradient>& gradients, bool ends = true) {
    const int64_t begin_us = clock_.now_us() + 100 * kMs;
    ++step_id_;
    std::vector<Sent> sent;
    for (const Gradient& one : gradients) {
      clock_.At(begin_us + one.at_us, [this, one, begin_us, &sent] {
        GroupSpec spec = Spec(16, credit_bytes_);
        spec.policy = policy_;
        spec.step_id = step_id_;
        std::swap(spec.sender, spec.receiver);
        link_.Submit(TaskOf(spec, one.rank, one.bytes), [this, one, begin_us, &sent](bool dropped) {
          EXPECT_FALSE(dropped);
          sent.push_back({one.rank, one.at_us, clock_.now_us() - begin_us});
        });
      });
    }
    EXPECT_TRUE(clock_.Run());
    EXPECT_EQ(sent.size(), gradients.size());
    if (ends) link_.EndStep(step_id_);
    EXPECT_TRUE(clock_.Run());
    return sent;
  }

  const Scheduler& scheduler() const { return link_.scheduler(); }

 private:
  VirtualClock clock_;
  VirtualLink link_;
  const std::string policy_;
  const int64_t credit_bytes_;
  int64_t step_id_ = 0;
};

Order OrderOf(const std::vector<Sent>& sent) {
  Order order;
  for (const Sent& one : sent) order.push_back(one.rank);
  return order;
}

int64_t DeliveredUs(const std::vector<Sent>& sent, int rank) {
  for (const Sent& one : sent) {
    if (one.rank == rank) return one.delivered_us;
  }
  return -1;
}

// Much at once that is not urgent, in pieces of 5 ms, and an urgent one 42 ms later: in the middle of the ninth.
std::vector<Gradient> Stepwise() {
  std::vector<Gradient> gradients;
  for (int rank = 1; rank <= 12; ++rank) gradients.push_back({rank, 0, 500 * kKb});
  gradients.push_back({0, 42 * kMs, 500 * kKb});
  return gradients;
}

TEST(ProphetPolicyTest, SendsByPriorityUntilAProfileExists) {
  Worker prophet("prophet"), other("bytescheduler");
  for (int step = 0; step < ReadyProfile::kTrusted; ++step) {
    const auto one = prophet.Step(Stepwise()), two = other.Step(Stepwise());
    EXPECT_EQ(OrderOf(one), OrderOf(two));
    for (const Sent& sent : one) EXPECT_EQ(sent.delivered_us, DeliveredUs(two, sent.rank));
  }
}

TEST(ProphetPolicyTest, ABlockClosesBeforeTheUrgentOneIsPredicted) {
  Worker prophet("prophet"), other("bytescheduler");
  std::vector<Sent> one, two;
  for (int step = 0; step < 8; ++step) one = prophet.Step(Stepwise()), two = other.Step(Stepwise());
  EXPECT_EQ(DeliveredUs(two, 0), 55 * kMs) << "behind what the credit let go: three pieces";
  EXPECT_EQ(DeliveredUs(one, 0), 50 * kMs) << "behind the piece that had begun";
  EXPECT_EQ(one.back().delivered_us, two.back().delivered_us) << "the link was never idle";
  EXPECT_EQ(prophet.scheduler().counters().step_asides, 0);
}

TEST(ProphetPolicyTest, WhatIsMoreUrgentThanAllThatComesIsNotHeld) {
  Worker prophet("prophet");
  std::vector<Gradient> gradients = {{0, 0, 500 * kKb}, {1, 0, 500 * kKb}, {2, 0, 2500 * kKb}, {3, 1 * kMs, 500 * kKb}};
  std::vector<Sent> sent;
  for (int step = 0; step < 8; ++step) sent = prophet.Step(gradients);
  EXPECT_EQ(OrderOf(sent), Order({0, 1, 2, 3}));
  EXPECT_EQ(sent.back().delivered_us, 40 * kMs);
}

TEST(ProphetPolicyTest, AnUrgentOneThatDoesNotComeIsGivenUp) {
  Worker prophet("prophet");
  auto gradients = Stepwise();
  gradients.back().at_us = 41 * kMs;
  for (int step = 0; step < 8; ++step) prophet.Step(gradients);
  gradients.pop_back();
  const auto sent = prophet.Step(gradients);
  EXPECT_EQ(prophet.scheduler().counters().step_asides, 1);
  EXPECT_EQ(sent.back().delivered_us, 60 * kMs) << "the link was busy meanwhile";
  for (int step = 0; step < 50; ++step) EXPECT_EQ(prophet.Step(gradients).back().delivered_us, 60 * kMs);
  EXPECT_EQ(prophet.scheduler().counters().step_asides, 1) << "it is not expected any more";
}

TEST(ProphetPolicyTest, AnUrgentOneThatIsEarlyGoesAtOnce) {
  Worker prophet("prophet");
  auto gradients = Stepwise();
  gradients.back().at_us = 41 * kMs;
  for (int step = 0; step < 8; ++step) prophet.Step(gradients);
  gradients.back().at_us = 40500;
  EXPECT_EQ(DeliveredUs(prophet.Step(gradients), 0), 50 * kMs) << "behind the piece that had begun";
}

TEST(ProphetPolicyTest, ItsStateIsFreed) {
  Worker prophet("prophet");
  for (int step = 0; step < 20; ++step) prophet.Step(Stepwise(), /*ends=*/step % 2 == 0);
  EXPECT_EQ(prophet.scheduler().counters().groups, 0);
}

TEST(ProphetPolicyTest, WithoutWhatTheSchedulerKnowsItIsAPriorityQueue) {
  PolicyOptions options;
  options.credit_bytes = 10;
  const auto policy = MakePolicy("prophet", options);
  std::map<uint64_t, CommTask> tasks;
  for (const int rank : {3, 1, 2}) {
    CommTask task = TaskOf(Spec(4), rank, 4);
    task.id = static_cast<uint64_t>(rank);
    tasks[task.id] = task;
    policy->Add(task, 0);
  }
  EXPECT_EQ(policy->Next(0), 1u);
  EXPECT_EQ(policy->Next(0), 2u);
  EXPECT_EQ(policy->Next(0), 0u) << "8 of 10 bytes";
  EXPECT_EQ(policy->WakeAtUs(), kNever);
  policy->Finished(tasks.at(1), 0);
  policy->Remove(tasks.at(3), 0);
  EXPECT_EQ(policy->Next(0), 0u);
  EXPECT_TRUE(policy->Complete());
}

// Random training of several workers from one server or to it, whose steps are alike until they are not: gradients are late
// or missing, steps end in the middle, links stall. The scheduler is driven as its contract says.
class RandomTraining {
 public:
  explicit RandomTraining(uint32_t seed) : random_(seed), scheduler_(SchedulerOptions()) {
    const int64_t us_a_kb = Draw(1, 40);
    const auto receivers = Draw(1, 3);
    const int64_t credit_bytes = Draw(0, 4) == 0 ? 0 : Draw(1, 3000) * kKb;
    const int64_t jitter_us = Draw(0, 2) == 0 ? 0 : Draw(1, 8000);
    const int64_t trouble = Draw(0, 2) == 0 ? 0 : Draw(1, 20);  // in a hundred
    std::vector<Gradient> gradients;
    int64_t at_us = 0;
    for (int rank = static_cast<int>(Draw(2, 30)); rank >= 0; --rank) {
      gradients.push_back({rank, at_us, Draw(1, 800) * kKb});
      if (Draw(0, 2) == 0) at_us += Draw(0, 30 * kMs);
    }
    for (int64_t receiver = 0; receiver < receivers; ++receiver) free_us_.push_back(0);
    int64_t begin_us = 0;
    for (int64_t step = 1; step <= 24; ++step) {
      const bool ends_early = Chance(trouble), slow = Chance(trouble);
      for (int64_t receiver = 0; receiver < receivers; ++receiver) {
        for (const Gradient& one : gradients) {
          if (Chance(trouble / 4)) continue;
          int64_t ready_us = begin_us + one.at_us * (slow ? 2 : 1) + Draw(0, jitter_us);
          if (Chance(trouble / 4)) ready_us += Draw(0, 100 * kMs);
          clock_.At(ready_us, [=] { Submit(step, receiver, one, credit_bytes, us_a_kb); });
          ++submitted_;
        }
      }
      // Steps may overlap, as they do across the barrier.
      const int64_t length_us = at_us * 2 + Draw(0, 200 * kMs);
      if (!Chance(10)) clock_.At(begin_us + (ends_early ? at_us / 2 : 1000 * kMs + length_us), [=] { EndStep(step); });
      begin_us += length_us;
    }
    Run();
  }

  void Check() {
    EXPECT_EQ(started_ + dropped_, submitted_);
    EXPECT_EQ(scheduler_.counters().queue_depth, 0);
    EXPECT_EQ(scheduler_.counters().groups, 0);
  }

  int64_t holds() const { return holds_; }

 private:
  struct Link {
    std::map<uint64_t, int> queued;  // id -> rank
    int64_t on_wire = 0;
  };

  int64_t Draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool Chance(int64_t percent) { return Draw(1, 100) <= percent; }

  void Submit(int64_t step, int64_t receiver, const Gradient& one, int64_t credit_bytes, int64_t us_a_kb) {
    GroupSpec spec = Spec(31, credit_bytes);
    spec.policy = "prophet";
    spec.step_id = step;
    spec.sender = kWorker;
    spec.receiver = kPs + std::to_string(receiver);
    const uint64_t id = scheduler_.Submit(TaskOf(spec, one.rank, one.bytes), clock_.now_us());
    us_a_kb_ = us_a_kb;
    links_[receiver].queued.emplace(id, one.rank);
    receiver_of_[id] = receiver;
    Poll();
  }

  void EndStep(int64_t step) {
    scheduler_.EndStep(step, clock_.now_us());
    Poll();
  }

  void Poll() {
    std::vector<Start> starts;
    const int64_t now_us = clock_.now_us();
    const int64_t wake_us = scheduler_.Poll(now_us, &starts);
    for (const Start& start : starts) {
      const uint64_t id = start.task.id;
      const int64_t receiver = receiver_of_.at(id);
      Link& link = links_[receiver];
      if (!start.dropped) {
        for (const auto& other : link.queued) EXPECT_GE(other.second, start.task.info->rank);
      }
      link.queued.erase(id);
      if (start.dropped) {
        ++dropped_;
        continue;
      }
      ++started_;
      ++link.on_wire;
      int64_t& free_us = free_us_[static_cast<size_t>(receiver)];
      free_us = std::max(free_us, now_us) + start.task.bytes / kKb * us_a_kb_;
      clock_.At(free_us, [this, id, receiver] {
        --links_[receiver].on_wire;
        scheduler_.Finish(id, clock_.now_us());
        Poll();
      });
    }
    for (const auto& entry : links_) {
      EXPECT_TRUE(entry.second.on_wire > 0 || entry.second.queued.empty()) << "a link is idle for a prediction";
    }
    if (wake_us == kNever) return;
    ++holds_;
    ASSERT_GT(wake_us, now_us) << "a wake that is not in the future is a busy loop";
    clock_.At(wake_us, [this] { Poll(); });
  }

  void Run() { EXPECT_TRUE(clock_.Run(10000000)) << "it asks to be woken for ever"; }

  std::mt19937 random_;
  VirtualClock clock_;
  Scheduler scheduler_;
  std::vector<int64_t> free_us_;
  std::map<int64_t, Link> links_;
  std::map<uint64_t, int64_t> receiver_of_;
  int64_t us_a_kb_ = 1;
  int64_t submitted_ = 0, started_ = 0, dropped_ = 0, holds_ = 0;
};

TEST(ProphetPolicyTest, NothingWaitsForLongHoweverTheStepsDiffer) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr uint32_t kTrainings = 60;
#else
  constexpr uint32_t kTrainings = 200;
#endif
  int64_t holds = 0;
  for (uint32_t seed = 0; seed < kTrainings; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomTraining training(seed);
    training.Check();
    holds += training.holds();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(holds, 30) << "or nothing was tested";
}

}  // namespace
}  // namespace tfsched
