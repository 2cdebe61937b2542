// What the tests of the calls share: waiters that remember what they were told.
#ifndef TFSCHED_CC_BARRIER_CALLS_TESTING_H_
#define TFSCHED_CC_BARRIER_CALLS_TESTING_H_

#include <memory>
#include <string>
#include <utility>

#include "cc/barrier/calls.h"
#include "gtest/gtest.h"

namespace tfsched {

inline const Outcome kFailure{9, "boom"};

// What a waiter was told, and how often.
template <typename W>
struct Answer {
  int calls = 0;
  Outcome outcome;
  int64_t token = 0;
  std::shared_ptr<W> waiter;
};

using Begun = Answer<Calls::Beginner>;
using Joined = Answer<Calls::Joiner>;

inline std::shared_ptr<Begun> Begin(Calls* calls, const std::string& client = "c") {
  auto begun = std::make_shared<Begun>();
  begun->waiter = std::make_shared<Calls::Beginner>([raw = begun.get()](const Outcome& outcome, int64_t token) {
    ++raw->calls;
    raw->outcome = outcome;
    raw->token = token;
  });
  calls->Begin(client, begun->waiter);
  return begun;
}

inline std::shared_ptr<Joined> NewJoined() {
  auto joined = std::make_shared<Joined>();
  joined->waiter = std::make_shared<Calls::Joiner>([raw = joined.get()](const Outcome& outcome) {
    ++raw->calls;
    raw->outcome = outcome;
  });
  return joined;
}

inline std::shared_ptr<Joined> Join(Calls* calls, int64_t token) {
  auto joined = NewJoined();
  calls->Join(token, joined->waiter);
  return joined;
}

inline std::shared_ptr<Joined> Drain(Calls* calls, const std::string& client = "c") {
  auto drained = NewJoined();
  calls->Drain(client, drained->waiter);
  return drained;
}

inline void ExpectEmpty(const Calls& calls) {
  const Calls::Counters counters = calls.counters();
  EXPECT_EQ(counters.outstanding, 0);
  EXPECT_EQ(counters.queued, 0);
  EXPECT_EQ(counters.held, 0);
  EXPECT_EQ(counters.errors, 0);
}

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_CALLS_TESTING_H_
