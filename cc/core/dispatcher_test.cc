// Tests of the dispatcher with real threads, and of the emulated link under a clock of the test's. All waits are bounded.
#include "cc/core/dispatcher.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cc/core/testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

using Order = std::vector<int>;

constexpr int64_t kHourUs = 3600LL * 1000 * 1000;

int64_t SteadyUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Dispatcher::Options Options(int64_t grace_us, std::function<int64_t()> now_us = SteadyUs) {
  Dispatcher::Options options;
  options.scheduler.grace_us = grace_us;
  options.now_us = std::move(now_us);
  return options;
}

// What was started, in order; shared by the test and the dispatcher's thread.
class Log {
 public:
  void Add(int rank, bool dropped) {
    std::lock_guard<std::mutex> lock(mu_);
    (dropped ? dropped_ : started_).push_back(rank);
    changed_.notify_all();
  }

  // Whether `count` tasks have been started or dropped within ten seconds.
  bool WaitFor(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return started_.size() + dropped_.size() >= count; });
  }

  Order started() {
    std::lock_guard<std::mutex> lock(mu_);
    return started_;
  }
  Order dropped() {
    std::lock_guard<std::mutex> lock(mu_);
    return dropped_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  Order started_, dropped_;
};

// A task that writes itself into `log`, then does `then` (with its id) unless it was dropped.
CommTask Logged(const GroupSpec& spec, int rank, Log* log, std::function<void(uint64_t)> then = nullptr, int64_t bytes = 1) {
  CommTask task = TaskOf(spec, rank, bytes);
  task.start = [rank, log, then = std::move(then)](uint64_t id, bool dropped) {
    log->Add(rank, dropped);
    if (!dropped && then) then(id);
  };
  return task;
}

TEST(DispatcherTest, StartsInThePolicysOrderFromManyThreads) {
  constexpr int kTasks = 64, kThreads = 4;
  Log log;
  Dispatcher dispatcher(Options(/*grace_us=*/kHourUs));
  const GroupSpec spec = Spec(kTasks, /*credit_bytes=*/4);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int rank = kTasks - 1 - thread; rank >= 0; rank -= kThreads) {
        dispatcher.Submit(Logged(spec, rank, &log, [&](uint64_t id) { dispatcher.Finish(id); }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(log.WaitFor(kTasks));
  Order expected;
  for (int rank = 0; rank < kTasks; ++rank) expected.push_back(rank);
  EXPECT_EQ(log.started(), expected);
}

TEST(DispatcherTest, StartMayFinishAndSubmitFromWithin) {
  constexpr int kSteps = 500;
  Log log;
  Dispatcher dispatcher(Options(/*grace_us=*/kHourUs));
  // Each step's task releases itself, ends an old step and submits the next one, all from within start().
  std::function<void(int)> submit = [&](int step) {
    GroupSpec spec = Spec(1, /*credit_bytes=*/1);
    spec.step_id = step;
    spec.policy = "fifo";
    dispatcher.Submit(Logged(spec, step, &log, [&, step](uint64_t id) {
      dispatcher.Finish(id);
      dispatcher.EndStep(step - 1);
      if (step + 1 < kSteps) submit(step + 1);
    }));
  };
  submit(0);
  ASSERT_TRUE(log.WaitFor(kSteps));
  EXPECT_EQ(log.started().size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(log.dropped().size(), 0u);
}

TEST(DispatcherTest, WakesItselfForAMissingRank) {
  Log log;
  Dispatcher dispatcher(Options(/*grace_us=*/2000));
  dispatcher.Submit(Logged(Spec(3), 2, &log));
  ASSERT_TRUE(log.WaitFor(1)) << "no event but the time";
  EXPECT_EQ(log.started(), Order({2}));
  EXPECT_EQ(dispatcher.scheduler().counters().step_asides, 1);
}

TEST(DispatcherTest, EndStepDrops) {
  Log log;
  Dispatcher dispatcher(Options(/*grace_us=*/kHourUs));
  dispatcher.Submit(Logged(Spec(3), 1, &log));
  dispatcher.Submit(Logged(Spec(3), 2, &log));
  dispatcher.EndStep(1);
  ASSERT_TRUE(log.WaitFor(2));
  EXPECT_EQ(log.dropped(), Order({1, 2}));
  EXPECT_EQ(log.started(), Order({}));
}

TEST(DispatcherTest, DestructorDropsWhatIsQueued) {
  Log log;
  {
    Dispatcher dispatcher(Options(/*grace_us=*/kHourUs));
    for (const int rank : {1, 2, 3}) dispatcher.Submit(Logged(Spec(4), rank, &log));
  }
  EXPECT_EQ(log.dropped(), Order({1, 2, 3}));
  EXPECT_EQ(log.started(), Order({}));
}

// Submits, releases and ends of steps race; every task is started or dropped exactly once.
TEST(DispatcherTest, EveryTaskOnceUnderRacingThreads) {
  constexpr int kThreads = 3, kSteps = 60, kRanks = 10;
  std::atomic<int> calls{0}, twice{0};
  std::vector<std::atomic<int>> called(kThreads * kSteps * kRanks);
  std::mutex mu;
  std::condition_variable changed;
  std::deque<uint64_t> to_release;
  bool stop = false;
  {
    Dispatcher dispatcher(Options(/*grace_us=*/200));
    std::thread releaser([&] {
      std::unique_lock<std::mutex> lock(mu);
      while (!stop) {
        changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return stop || !to_release.empty(); });
        while (!to_release.empty()) {
          const uint64_t id = to_release.front();
          to_release.pop_front();
          lock.unlock();
          dispatcher.Finish(id);
          lock.lock();
        }
      }
    });
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int step = 0; step < kSteps; ++step) {
          GroupSpec spec = Spec(kRanks + 1, /*credit_bytes=*/3);  // the last rank never comes
          spec.step_id = thread * kSteps + step;
          for (int rank = 0; rank < kRanks; ++rank) {
            CommTask task = TaskOf(spec, (rank * 7 + step) % kRanks);
            const int number = (thread * kSteps + step) * kRanks + rank;
            task.start = [&, number](uint64_t id, bool dropped) {
              if (called[number]++ != 0) ++twice;
              ++calls;
              if (dropped) return;
              std::lock_guard<std::mutex> lock(mu);
              to_release.push_back(id);
              changed.notify_one();
            };
            dispatcher.Submit(std::move(task));
          }
          if (step % 2 == 0) dispatcher.EndStep(spec.step_id);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (calls < kThreads * kSteps * kRanks && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(calls, kThreads * kSteps * kRanks);
    {
      std::lock_guard<std::mutex> lock(mu);
      stop = true;
      changed.notify_one();
    }
    releaser.join();
  }
  EXPECT_EQ(twice, 0);
}

// A clock that the test moves and whose reads are counted.
class FakeClock {
 public:
  void Set(int64_t now_us) { now_us_ = now_us; }
  int64_t Read() {
    ++reads_;
    return now_us_;
  }
  // Waits until the dispatcher's thread has acted on the present time; false after ten seconds. Each round wakes the thread,
  // which reads the clock at the start of its loop and perhaps twice more before it waits: several rounds, so that the last
  // read cannot belong to a loop that began before this call.
  bool Settle(Dispatcher* dispatcher) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int round = 0; round < 5; ++round) {
      const int64_t before = reads_;
      dispatcher->Finish(0);  // no such task: reads the clock once, then wakes the thread
      while (reads_ < before + 2) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    return true;
  }

 private:
  std::atomic<int64_t> now_us_{0}, reads_{0};
};

TEST(DispatcherTest, AClockThatIsSetBackDelaysNothing) {
  FakeClock clock;
  clock.Set(2 * kHourUs);
  Log log;
  Dispatcher dispatcher(Options(/*grace_us=*/1000, [&] { return clock.Read(); }));
  dispatcher.Submit(Logged(Spec(2), 1, &log));
  clock.Set(kHourUs);
  ASSERT_TRUE(clock.Settle(&dispatcher));
  EXPECT_EQ(log.started(), Order({}));
  clock.Set(kHourUs + 1000);
  ASSERT_TRUE(log.WaitFor(1)) << "a millisecond has passed, whatever the clock said before";
  clock.Set(0);
  const int64_t before = dispatcher.NowUs();
  clock.Set(5);
  EXPECT_EQ(dispatcher.NowUs(), before + 5);
}

TEST(EmulatedLinkTest, TransfersPassOneAfterTheOther) {
  EmulatedLink link(8e6);  // one byte a microsecond
  EXPECT_EQ(link.DeliverAtUs(100, 50), 150);
  EXPECT_EQ(link.DeliverAtUs(100, 50), 200) << "the link is busy until 150";
  EXPECT_EQ(link.DeliverAtUs(120, 0), 200);
  EXPECT_EQ(link.DeliverAtUs(1000, 50), 1050) << "idle time is not saved up";
}

TEST(EmulatedLinkTest, RoundingDoesNotAddUp) {
  EmulatedLink link(3e6);  // a byte takes 2.67 microseconds
  int64_t last_us = 0;
  for (int transfer = 0; transfer < 3000; ++transfer) last_us = link.DeliverAtUs(0, 1);
  EXPECT_NEAR(static_cast<double>(last_us), 8000, 1);
}

TEST(DispatcherTest, EmulatedLinkDeliversWhenTheBytesHavePassed) {
  FakeClock clock;
  Log log;
  Dispatcher::Options options = Options(/*grace_us=*/kHourUs, [&] { return clock.Read(); });
  options.emulated_bps = 8e6;  // one byte a microsecond
  Dispatcher dispatcher(options);
  EXPECT_TRUE(dispatcher.emulated());
  const GroupSpec spec = Spec(2, /*credit_bytes=*/1000);
  dispatcher.Submit(Logged(spec, 0, &log, nullptr, 1000000));
  ASSERT_TRUE(clock.Settle(&dispatcher));
  dispatcher.Submit(Logged(spec, 1, &log, nullptr, 500000));
  clock.Set(999999);
  ASSERT_TRUE(clock.Settle(&dispatcher));
  EXPECT_EQ(log.started(), Order({}));
  EXPECT_EQ(dispatcher.scheduler().counters().on_wire_bytes, 1000000) << "the credit covers the bytes on the link";
  clock.Set(1000000);
  ASSERT_TRUE(log.WaitFor(1));
  ASSERT_TRUE(clock.Settle(&dispatcher));
  EXPECT_EQ(dispatcher.scheduler().counters().on_wire_bytes, 500000);
  clock.Set(1499999);
  ASSERT_TRUE(clock.Settle(&dispatcher));
  EXPECT_EQ(log.started(), Order({0}));
  clock.Set(1500000);
  ASSERT_TRUE(log.WaitFor(2));
  EXPECT_EQ(log.started(), Order({0, 1}));
}

// The dispatcher's thread may be kept from running between its look at the clock and its starts, and a task may come
// meanwhile.
TEST(DispatcherTest, EmulatedLinkCountsFromTheStart) {
  FakeClock clock;
  Log log;
  Dispatcher::Options options = Options(/*grace_us=*/kHourUs, [&] { return clock.Read(); });
  options.emulated_bps = 8e6;  // one byte a microsecond
  Dispatcher dispatcher(options);
  const GroupSpec spec = Spec(2, /*credit_bytes=*/1000);
  dispatcher.Submit(Logged(
      spec, 0, &log,
      [&](uint64_t) {
        clock.Set(1100);
        dispatcher.Submit(Logged(spec, 1, &log, nullptr, 500));
      },
      100));
  ASSERT_TRUE(clock.Settle(&dispatcher));
  clock.Set(100);
  ASSERT_TRUE(log.WaitFor(1));
  ASSERT_TRUE(clock.Settle(&dispatcher));
  clock.Set(1599);
  ASSERT_TRUE(clock.Settle(&dispatcher));
  EXPECT_EQ(log.started(), Order({0})) << "the second started at 1100 and takes 500";
  clock.Set(1600);
  ASSERT_TRUE(log.WaitFor(2));
  ASSERT_TRUE(clock.Settle(&dispatcher));
  const std::vector<TransferRecord> trace = dispatcher.scheduler().Trace();
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[1].started_us, 1100);
  EXPECT_EQ(trace[1].released_us, 1600);
}

TEST(DispatcherTest, DestructorDropsWhatIsOnTheEmulatedLink) {
  FakeClock clock;
  Log log;
  {
    Dispatcher::Options options = Options(/*grace_us=*/kHourUs, [&] { return clock.Read(); });
    options.emulated_bps = 8;
    Dispatcher dispatcher(options);
    dispatcher.Submit(Logged(Spec(3), 0, &log));
    ASSERT_TRUE(clock.Settle(&dispatcher));
    dispatcher.Submit(Logged(Spec(3), 2, &log));
  }
  EXPECT_EQ(log.dropped(), Order({0, 2}));
  EXPECT_EQ(log.started(), Order({}));
}

}  // namespace
}  // namespace tfsched
