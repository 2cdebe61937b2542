// The calls in random orders of events and from several threads: nothing hangs, every failure is told once.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "cc/barrier/calls_testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

// Steps of several sessions of one client, in any order that a cluster may bring about, with everything failing now and
// then. The account: at most two calls run, and the earlier one only delivers; an error is told once, by its own step before
// the join, or by the next one.
class Schedule {
 public:
  explicit Schedule(uint32_t seed) : random_(seed), calls_(seed) {}

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      Act();
      Check();
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (int round = 0; round < 100000 && !(live_.empty() && queue_.empty()); ++round) Finish();
    ASSERT_TRUE(live_.empty() && queue_.empty() && asked_.empty()) << "something hangs";
    const auto last = Drain(&calls_);
    EXPECT_EQ(last->calls, 1);
    if (!last->outcome.ok()) ++told_;
    EXPECT_EQ(told_, owed_);
    EXPECT_TRUE(IsEmpty(calls_));
  }

 private:
  struct Live {
    int64_t token = 0;
    bool over = false, applied = false, done = false, failed = false, told = false;
    std::shared_ptr<Joined> joining;

    bool joined() const { return joining != nullptr && joining->calls == 1 && joining->outcome.ok(); }
    bool delivers() const { return applied && joined() && !done; }
    bool settled() const { return done && !(failed && !joined() && !told && !over); }
  };

  int Draw(int below) { return static_cast<int>(random_() % below); }

  void Act() {
    if (live_.empty() || Draw(4) == 0) {
      if (queue_.size() < 4) queue_.push_back(Begin(&calls_));
      return;
    }
    if (!queue_.empty() && Draw(10) == 0) {
      const auto& begun = queue_[Draw(static_cast<int>(queue_.size()))];
      calls_.CancelBegin("c", begun->waiter);
      return;
    }
    Live& live = live_[Draw(static_cast<int>(live_.size()))];
    switch (Draw(7)) {
      case 0:
        calls_.Ack(live.token);
        break;
      case 1:
        if (live.joining == nullptr && !live.over) live.joining = Join(&calls_, live.token);
        break;
      case 2:
        End(&live);
        break;
      case 3:
        if (!live.done) Done(&live, Draw(3) == 0);
        break;
      case 4:
        if (!live.over && !calls_.TakeError(live.token).ok()) Tell(&live);
        break;
      case 5:
        if (live.done) break;
        live.applied = true;
        calls_.Applied(live.token);
        break;
      default:
        Ask();
        break;
    }
  }

  // For what has returned: at once, unless the last step that has joined or failed has left something under way.
  void Ask() {
    const auto last = std::find_if(live_.rbegin(), live_.rend(), [](const Live& live) { return !live.settled(); });
    const bool waits = last != live_.rend() && (last->joined() || last->over);
    asked_.push_back(DrainReturned(&calls_));
    ASSERT_EQ(asked_.back()->calls, waits ? 0 : 1);
  }

  void Finish() {
    for (Live& live : live_) {
      if (!live.done) Done(&live, Draw(3) == 0);
      End(&live);
    }
    Check();
  }

  void Done(Live* live, bool fail) {
    live->done = true;
    live->failed = fail;
    // A join that has passed by now: the error is owed to somebody else. Of two that nobody has been told the first counts.
    if (fail && live->joined()) {
      if (calls_.counters().errors == 0) ++owed_;
      live->told = true;
    }
    calls_.Done(live->token, fail ? kFailure : Outcome());
  }

  void End(Live* live) {
    if (live->over) return;
    // Steps end after their kernels: a join is given up first.
    if (live->joining != nullptr) calls_.CancelJoin(live->token, live->joining->waiter);
    const bool cancel = calls_.EndStep(live->token);
    ASSERT_EQ(cancel, !live->joined() && !live->done);
    live->over = true;
  }

  void Tell(Live* live) {
    ASSERT_TRUE(live->failed);
    live->told = true;
  }

  void Check() {
    for (auto it = queue_.begin(); it != queue_.end();) {
      if ((*it)->calls == 0) {
        ++it;
        continue;
      }
      ASSERT_EQ((*it)->calls, 1);
      if ((*it)->outcome.ok()) {
        ASSERT_GT((*it)->token, 0);
        const auto runs = std::count_if(live_.begin(), live_.end(), [](const Live& live) { return !live.done; });
        const auto deliver = std::count_if(live_.begin(), live_.end(), [](const Live& live) { return live.delivers(); });
        ASSERT_LE(runs, 1);
        ASSERT_EQ(runs, deliver) << "two calls of one client update";
        live_.emplace_back();
        live_.back().token = (*it)->token;
      } else if ((*it)->outcome.code == kFailure.code) {
        ++told_;
      }
      it = queue_.erase(it);
    }
    for (Live& live : live_) {
      if (live.joining != nullptr && live.joining->outcome.code == kFailure.code && !live.told) Tell(&live);
    }
    for (auto it = asked_.begin(); it != asked_.end();) {
      const bool answered = (*it)->calls == 1;
      if (answered && (*it)->outcome.code == kFailure.code) ++told_;
      it = answered ? asked_.erase(it) : it + 1;
    }
    live_.erase(std::remove_if(live_.begin(), live_.end(), [](const Live& live) { return live.done && live.over; }),
                live_.end());
  }

  std::mt19937 random_;
  Calls calls_;
  std::vector<std::shared_ptr<Begun>> queue_;
  std::vector<std::shared_ptr<Joined>> asked_;  // drains of what has returned
  std::vector<Live> live_;
  int owed_ = 0;  // failures after a join
  int told_ = 0;  // of those, told
};

TEST(CallsSchedules, RandomSchedules) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Schedule(seed).Run(3000);
    if (HasFatalFailure()) return;
  }
}

TEST(CallsSchedules, ManyThreadsLeaveNothing) {
  constexpr int kThreads = 4, kSteps = 500;
  Calls calls(1);
  std::atomic<int> running{0}, begun{0}, told{0}, failed{0};
  std::vector<std::thread> threads;
  for (int index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      for (int step = 0; step < kSteps; ++step) {
        // The callback may come on another's thread: wait for it as a kernel's step would.
        std::mutex mu;
        std::condition_variable changed;
        bool answered = false;
        int64_t token = 0;
        auto beginner = std::make_shared<Calls::Beginner>([&](const Outcome& outcome, int64_t given) {
          if (!outcome.ok() && outcome.code == kFailure.code) ++told;
          EXPECT_TRUE(given == 0 || running.fetch_add(1) == 0) << "two calls of one client update";
          std::lock_guard<std::mutex> lock(mu);
          answered = true;
          token = given;
          changed.notify_all();
        });
        calls.Begin("c", beginner);
        if ((step + index) % 9 == 0) calls.CancelBegin("c", beginner);
        {
          std::unique_lock<std::mutex> lock(mu);
          ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return answered; }));
        }
        if (token == 0) continue;
        ++begun;
        calls.Ack(token);
        const auto joined = Join(&calls, token);
        EXPECT_TRUE(joined->outcome.ok());
        const bool fail = step % 5 == 0;
        if (fail) ++failed;
        running = 0;
        if (!fail && step % 3 > 0) calls.Applied(token);
        std::thread over([&] { calls.EndStep(token); });
        calls.Done(token, fail ? kFailure : Outcome());
        over.join();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto last = Drain(&calls);
  if (!last->outcome.ok()) ++told;
  EXPECT_EQ(told.load(), failed.load());
  EXPECT_EQ(calls.counters().begun, begun.load());
  EXPECT_EQ(calls.counters().failed, failed.load());
  EXPECT_TRUE(IsEmpty(calls));
}

}  // namespace
}  // namespace tfsched
