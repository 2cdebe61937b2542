// The pace: that of a busy link, whatever came before and between, and nothing where the link was never busy for long.
#include "cc/core/pace.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "cc/core/scheduler.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr int64_t kMessage = 1 << 18;

// Two messages are on the wire at any time; each leaves `us` after the one before.
void Keep(Pace* pace, int64_t* now_us, int messages, int64_t us) {
  pace->Started("w", kMessage, *now_us);
  for (int i = 0; i < messages; ++i) {
    pace->Started("w", kMessage, *now_us);
    *now_us += us;
    pace->Released("w", kMessage, *now_us);
  }
  pace->Released("w", kMessage, *now_us);
}

TEST(PaceTest, IsThatOfABusyLink) {
  Pace pace;
  int64_t now_us = 0;
  EXPECT_EQ(pace.Bps("w"), 0);
  Keep(&pace, &now_us, 40, 2048);
  EXPECT_EQ(pace.Bps("w"), 1'024'000'000);  // 2^18 bytes in 2,048 us
  EXPECT_EQ(pace.Bps("other"), 0);
  EXPECT_EQ(pace.SlowestBps(), 1'024'000'000);
}

TEST(PaceTest, WhatTheKernelTakesAtOnceDoesNotCount) {
  Pace pace;
  int64_t now_us = 0;
  for (int i = 0; i < 100; ++i) {  // never more than it takes
    Keep(&pace, &now_us, 3, 0);
    now_us += 2 * Pace::kPauseUs;
  }
  EXPECT_EQ(pace.Bps("w"), 0);
  pace.Started("w", kMessage, now_us);
  Keep(&pace, &now_us, 3, 0);
  Keep(&pace, &now_us, 16, 2048);
  EXPECT_EQ(pace.Bps("w"), 1'024'000'000);
}

TEST(PaceTest, AnIdleLinkDoesNotCount) {
  Pace pace;
  int64_t now_us = 0;
  Keep(&pace, &now_us, 40, 2048);
  for (int i = 0; i < 100; ++i) {  // one by one, with pauses
    pace.Started("w", kMessage, now_us);
    pace.Released("w", kMessage, now_us + 2048);
    now_us += 1'000'000;
  }
  EXPECT_EQ(pace.Bps("w"), 1'024'000'000);
}

TEST(PaceTest, FollowsALinkThatChanges) {
  Pace pace;
  int64_t now_us = 0;
  Keep(&pace, &now_us, 40, 2048);
  Keep(&pace, &now_us, 400, 4096);
  EXPECT_NEAR(static_cast<double>(pace.Bps("w")), 512e6, 1e6);
}

TEST(PaceTest, ALinkThatIsFasterThanItsSenderIsFoundToBeFast) {
  Pace pace;
  int64_t now_us = 0;
  Keep(&pace, &now_us, 40, 20480);
  EXPECT_EQ(pace.Bps("w"), 102'400'000);
  for (int i = 0; i < 400; ++i) {  // one by one: each has left long before the next is there
    pace.Started("w", kMessage, now_us);
    pace.Released("w", kMessage, now_us + 100);
    now_us += 100 + Pace::kPauseUs;
  }
  EXPECT_NEAR(static_cast<double>(pace.Bps("w")), kMessage * 8e6 / (100 + Pace::kPauseUs), 50e6);
}

TEST(PaceTest, TheSchedulerMeasuresWhatItStarts) {
  Scheduler scheduler{SchedulerOptions()};
  auto info = std::make_shared<TransferInfo>();
  info->receiver = "b";
  info->policy = "bytescheduler";
  info->rank = 0;
  info->count = 1;
  info->credit_bytes = 2 * kMessage;
  for (int i = 0; i < 40; ++i) {
    CommTask task;
    task.info = info;
    task.sender = "a";
    task.bytes = kMessage;
    task.start = [](uint64_t, bool) {};
    scheduler.Submit(std::move(task), 0);
  }
  std::deque<uint64_t> on_wire;
  std::vector<Start> starts;
  int64_t now_us = 0;
  do {
    starts.clear();
    scheduler.Poll(now_us, &starts);
    for (const Start& start : starts) on_wire.push_back(start.task.id);
    now_us += 2048;
    scheduler.Finish(on_wire.front(), now_us);
    on_wire.pop_front();
  } while (!on_wire.empty());
  EXPECT_EQ(scheduler.PaceBps("a"), 1'024'000'000);
}

}  // namespace
}  // namespace tfsched
