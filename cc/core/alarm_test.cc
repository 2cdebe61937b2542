// The alarm: calls in the order in which they are due, and not those that were cancelled.
#include "cc/core/alarm.h"

#include <condition_variable>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

TEST(Alarm, CallsInOrderAndForgets) {
  std::mutex mu;
  std::condition_variable changed;
  std::vector<int> order;
  const auto call = [&](int which) {
    return [&, which] {
      std::lock_guard<std::mutex> lock(mu);
      order.push_back(which);
      changed.notify_all();
    };
  };
  Alarm alarm;
  alarm.After(60'000, call(3));
  const Alarm::Id forgotten = alarm.After(40'000, call(2));
  alarm.After(20'000, call(1));
  alarm.Cancel(forgotten);
  EXPECT_EQ(alarm.pending(), 2);
  std::unique_lock<std::mutex> lock(mu);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return order.size() == 2; }));
  EXPECT_EQ(order, (std::vector<int>{1, 3}));
  EXPECT_EQ(alarm.pending(), 0);
}

TEST(Alarm, ACallMaySetAnother) {
  std::mutex mu;
  std::condition_variable changed;
  bool done = false;
  Alarm alarm;
  alarm.After(0, [&] {
    alarm.After(0, [&] {
      std::lock_guard<std::mutex> lock(mu);
      done = true;
      changed.notify_all();
    });
  });
  std::unique_lock<std::mutex> lock(mu);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return done; }));
}

TEST(Alarm, GoesWithoutWaiting) {
  Alarm alarm;
  alarm.After(3'600'000'000, [] { FAIL(); });
}

}  // namespace
}  // namespace tfsched
