// The calls: one at a time, every error told exactly once and to the right one, nothing hangs, nothing is left over.
#include "cc/barrier/calls.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

const Outcome kFailure{9, "boom"};

template <typename W>
struct Answer {
  int calls = 0;
  Outcome outcome;
  int64_t token = 0;
  std::shared_ptr<W> waiter;
};

using Begun = Answer<Calls::Beginner>;
using Joined = Answer<Calls::Joiner>;

std::shared_ptr<Begun> Begin(Calls* calls, const std::string& client = "c") {
  auto begun = std::make_shared<Begun>();
  begun->waiter = std::make_shared<Calls::Beginner>([raw = begun.get()](const Outcome& outcome, int64_t token) {
    ++raw->calls;
    raw->outcome = outcome;
    raw->token = token;
  });
  calls->Begin(client, begun->waiter);
  return begun;
}

std::shared_ptr<Joined> NewJoined() {
  auto joined = std::make_shared<Joined>();
  joined->waiter = std::make_shared<Calls::Joiner>([raw = joined.get()](const Outcome& outcome) {
    ++raw->calls;
    raw->outcome = outcome;
  });
  return joined;
}

std::shared_ptr<Joined> Join(Calls* calls, int64_t token) {
  auto joined = NewJoined();
  calls->Join(token, joined->waiter);
  return joined;
}

std::shared_ptr<Joined> Drain(Calls* calls, const std::string& client = "c") {
  auto drained = NewJoined();
  calls->Drain(client, drained->waiter);
  return drained;
}

void ExpectEmpty(const Calls& calls) {
  const Calls::Counters counters = calls.counters();
  EXPECT_EQ(counters.outstanding, 0);
  EXPECT_EQ(counters.queued, 0);
  EXPECT_EQ(counters.held, 0);
  EXPECT_EQ(counters.errors, 0);
}

TEST(Calls, OneAtATimePerClient) {
  Calls calls(1);
  const auto first = Begin(&calls), second = Begin(&calls), other = Begin(&calls, "d");
  EXPECT_GT(first->token, 0);
  EXPECT_GT(other->token, 0);
  EXPECT_EQ(second->calls, 0);
  EXPECT_EQ(calls.Outstanding("c"), 2);
  calls.Ack(first->token);
  EXPECT_TRUE(Join(&calls, first->token)->outcome.ok());
  EXPECT_FALSE(calls.EndStep(first->token));
  EXPECT_EQ(second->calls, 0) << "f goes on";
  calls.Done(first->token, {});
  EXPECT_GT(second->token, 0);
  for (const auto& begun : {second, other}) {
    calls.Done(begun->token, {});
    EXPECT_TRUE(Join(&calls, begun->token)->outcome.ok()) << "f may be over before the step joins";
    calls.EndStep(begun->token);
  }
  ExpectEmpty(calls);
}

TEST(Calls, TheNextStepIsToldOnce) {
  Calls calls(1);
  const auto first = Begin(&calls);
  calls.Ack(first->token);
  Join(&calls, first->token);
  const auto waiting = Begin(&calls);
  calls.EndStep(first->token);
  calls.Done(first->token, kFailure);
  EXPECT_EQ(waiting->outcome.code, kFailure.code);
  EXPECT_EQ(waiting->outcome.message, "tfsched: the background update of an earlier step failed: boom");
  EXPECT_EQ(waiting->token, 0);
  const auto next = Begin(&calls);
  EXPECT_TRUE(next->outcome.ok());
  calls.Abandon(next->token);
  EXPECT_EQ(calls.counters().failed, 1);
  ExpectEmpty(calls);
}

TEST(Calls, CommittedIsTheLastTokenThatWasJoinedUnlessItFailed) {
  Calls calls(1);
  EXPECT_EQ(calls.Committed("c"), 0);
  const auto first = Begin(&calls);
  calls.Ack(first->token);
  EXPECT_EQ(calls.Committed("c"), 0) << "its step may still fail, which cancels f";
  Join(&calls, first->token);
  EXPECT_EQ(calls.Committed("c"), first->token) << "while f runs";
  EXPECT_TRUE(calls.IsUnderWay("c", first->token));
  EXPECT_FALSE(calls.IsUnderWay("d", first->token));
  EXPECT_FALSE(calls.IsUnderWay("c", 0));
  EXPECT_EQ(calls.Committed("d"), 0);
  calls.EndStep(first->token);
  calls.Done(first->token, Outcome());
  EXPECT_EQ(calls.Committed("c"), first->token) << "and after it";
  EXPECT_FALSE(calls.IsUnderWay("c", first->token));

  const auto second = Begin(&calls);
  auto joined = NewJoined();
  calls.Join(second->token, joined->waiter);
  EXPECT_EQ(calls.Committed("c"), first->token);
  calls.Ack(second->token);
  EXPECT_EQ(calls.Committed("c"), second->token);
  calls.EndStep(second->token);
  calls.Done(second->token, kFailure);
  EXPECT_EQ(calls.Committed("c"), 0) << "what a failed f has sent may be lost";
  Begin(&calls);  // is told

  const auto third = Begin(&calls);
  EXPECT_TRUE(calls.EndStep(third->token)) << "its step failed";
  calls.Done(third->token, Outcome::Derived(kAbortedCode, "no gradient"));
  EXPECT_EQ(calls.Committed("c"), 0);
  EXPECT_EQ(calls.counters().held, 0);
}

TEST(Calls, WhoAwaitsAReturnIsToldWhenTheStepComesToItsJoinOrThatItWillNot) {
  Calls calls(1);
  const auto await = [&](int64_t token) {
    auto awaited = NewJoined();
    calls.AwaitReturn(token, awaited->waiter);
    return awaited;
  };
  const int64_t first = Begin(&calls)->token;
  const auto early = await(first);
  EXPECT_EQ(early->calls, 0);
  const auto joined = Join(&calls, first);
  const auto late = await(first);
  EXPECT_EQ(joined->calls, 0) << "whoever is told of the return may have to tell others before the Ack";
  for (const auto& one : {early, late}) {
    EXPECT_EQ(one->calls, 1);
    EXPECT_TRUE(one->outcome.ok());
  }
  calls.Ack(first);
  EXPECT_EQ(joined->calls, 1);
  EXPECT_FALSE(calls.EndStep(first));
  EXPECT_TRUE(await(first)->outcome.ok());  // the step is over, the function is not
  calls.Done(first, Outcome());
  EXPECT_EQ(await(first)->outcome.code, kCancelledCode);

  const int64_t second = Begin(&calls)->token;
  const auto never = await(second);
  EXPECT_TRUE(calls.EndStep(second));
  EXPECT_EQ(never->calls, 1);
  EXPECT_EQ(never->outcome.code, kCancelledCode);
  calls.Done(second, never->outcome);

  const int64_t third = Begin(&calls)->token;
  const auto given_up = await(third);
  calls.CancelAwaitReturn(third, given_up->waiter);
  EXPECT_EQ(given_up->outcome.code, kCancelledCode);
  const auto failed = await(third);
  calls.Done(third, kFailure);
  EXPECT_EQ(failed->outcome.code, kCancelledCode);
  EXPECT_FALSE(calls.EndStep(third));
  EXPECT_EQ(given_up->calls, 1);
  EXPECT_EQ(calls.counters().held, 0);
}

TEST(Calls, AFailureBeforeTheJoinIsTheStepsOwn) {
  for (const bool join_first : {true, false}) {
    Calls calls(1);
    const auto begun = Begin(&calls), next = Begin(&calls);
    auto joined = join_first ? Join(&calls, begun->token) : nullptr;
    calls.Done(begun->token, kFailure);
    EXPECT_EQ(next->calls, join_first ? 1 : 0) << "who tells it has to be clear first";
    if (!join_first) joined = Join(&calls, begun->token);
    EXPECT_EQ(joined->outcome.code, kFailure.code);
    EXPECT_EQ(joined->outcome.message, "tfsched: the background update of this step failed: boom");
    EXPECT_TRUE(next->outcome.ok());
    calls.EndStep(begun->token);
    calls.Abandon(next->token);
    ExpectEmpty(calls);
  }
}

TEST(Calls, APutMayTellItToo) {
  Calls calls(1);
  const auto begun = Begin(&calls);
  EXPECT_TRUE(calls.TakeError(begun->token).ok());
  calls.Done(begun->token, kFailure);
  EXPECT_EQ(calls.TakeError(begun->token).code, kFailure.code);
  calls.EndStep(begun->token);
  EXPECT_TRUE(calls.TakeError(begun->token).ok());
  EXPECT_TRUE(Drain(&calls)->outcome.ok());
  ExpectEmpty(calls);
}

TEST(Calls, AStepThatFailsBeforeItsJoinCancelsAndTellsNobody) {
  for (const bool done_first : {true, false}) {
    Calls calls(1);
    const auto begun = Begin(&calls), next = Begin(&calls);
    if (done_first) calls.Done(begun->token, Outcome::Derived(kAbortedCode, "no gradient"));
    EXPECT_EQ(calls.EndStep(begun->token), !done_first);
    EXPECT_EQ(Join(&calls, begun->token)->outcome.code, kCancelledCode);
    if (!done_first) calls.Done(begun->token, kFailure);
    EXPECT_TRUE(next->outcome.ok());
    calls.Abandon(next->token);
    EXPECT_EQ(calls.counters().failed, 0);
    ExpectEmpty(calls);
  }
}

TEST(Calls, DrainWaitsInTurnAndTells) {
  Calls calls(1);
  EXPECT_EQ(Drain(&calls)->calls, 1);
  const auto begun = Begin(&calls);
  const auto drained = Drain(&calls), again = Drain(&calls);
  const auto next = Begin(&calls);
  calls.Ack(begun->token);
  Join(&calls, begun->token);
  calls.EndStep(begun->token);
  EXPECT_EQ(drained->calls, 0);
  calls.Done(begun->token, kFailure);
  EXPECT_EQ(drained->outcome.code, kFailure.code);
  EXPECT_TRUE(again->outcome.ok());
  EXPECT_TRUE(next->outcome.ok());
  calls.Abandon(next->token);
  ExpectEmpty(calls);
}

TEST(Calls, WhatIsGivenUpLeavesNothing) {
  Calls calls(1);
  const auto begun = Begin(&calls), waiting = Begin(&calls);
  const auto drained = Drain(&calls), joined = Join(&calls, begun->token);
  calls.CancelBegin("c", waiting->waiter);
  calls.CancelDrain("c", drained->waiter, {kDeadlineExceededCode, "late"});
  calls.CancelJoin(begun->token, joined->waiter);
  EXPECT_EQ(waiting->outcome.code, kCancelledCode);
  EXPECT_EQ(drained->outcome.code, kDeadlineExceededCode);
  EXPECT_EQ(joined->outcome.code, kCancelledCode);
  EXPECT_TRUE(calls.EndStep(begun->token));
  calls.Done(begun->token, {kCancelledCode, "cancelled"});
  const auto before = std::make_shared<Calls::Beginner>([](const Outcome& outcome, int64_t token) {
    EXPECT_EQ(outcome.code, kCancelledCode);
    EXPECT_EQ(token, 0);
  });
  calls.CancelBegin("c", before);
  calls.Begin("c", before);
  EXPECT_EQ(waiting->calls + drained->calls + joined->calls, 3);
  ExpectEmpty(calls);
}

TEST(Calls, WaitIdleIsBounded) {
  Calls calls(1);
  EXPECT_EQ(calls.WaitIdle(0), 0);
  const auto begun = Begin(&calls);
  EXPECT_EQ(calls.WaitIdle(1000), 1);
  std::thread other([&] { calls.Done(begun->token, {}); });
  EXPECT_EQ(calls.WaitIdle(60'000'000), 0);
  other.join();
  calls.EndStep(begun->token);
  ExpectEmpty(calls);
}

// Steps of several sessions of one client, in any order that a cluster may bring about, with everything failing now and
// then. The account: at most one call runs; an error is told once, by its own step before the join, or by the next one.
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
    ASSERT_TRUE(live_.empty() && queue_.empty()) << "something hangs";
    const auto last = Drain(&calls_);
    EXPECT_EQ(last->calls, 1);
    if (!last->outcome.ok()) ++told_;
    EXPECT_EQ(told_, owed_);
    ExpectEmpty(calls_);
  }

 private:
  struct Live {
    int64_t token = 0;
    bool over = false, done = false, failed = false, told = false;
    std::shared_ptr<Joined> joining;
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
    switch (Draw(6)) {
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
      default:
        break;
    }
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
    // A join that has passed by now: the error is owed to somebody else.
    if (fail && live->joining != nullptr && live->joining->calls == 1 && live->joining->outcome.ok()) {
      ++owed_;
      live->told = true;
    }
    calls_.Done(live->token, fail ? kFailure : Outcome());
  }

  void End(Live* live) {
    if (live->over) return;
    // Steps end after their kernels: a join is given up first.
    if (live->joining != nullptr) calls_.CancelJoin(live->token, live->joining->waiter);
    const bool joined = live->joining != nullptr && live->joining->calls == 1 && live->joining->outcome.ok();
    const bool cancel = calls_.EndStep(live->token);
    ASSERT_EQ(cancel, !joined && !live->done);
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
        for (const Live& live : live_) ASSERT_TRUE(live.done) << "two calls of one client run";
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
    live_.erase(std::remove_if(live_.begin(), live_.end(), [](const Live& live) { return live.done && live.over; }),
                live_.end());
  }

  std::mt19937 random_;
  Calls calls_;
  std::vector<std::shared_ptr<Begun>> queue_;
  std::vector<Live> live_;
  int owed_ = 0;  // failures after a join
  int told_ = 0;  // of those, told
};

TEST(Calls, RandomSchedules) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Schedule(seed).Run(3000);
    if (HasFatalFailure()) return;
  }
}

TEST(Calls, ManyThreadsLeaveNothing) {
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
          EXPECT_TRUE(given == 0 || running.fetch_add(1) == 0) << "two calls of one client run";
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
  ExpectEmpty(calls);
}

}  // namespace
}  // namespace tfsched
