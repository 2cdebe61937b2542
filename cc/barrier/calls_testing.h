// What the tests of the calls share: waiters that remember what they were told.
#ifndef TFSCHED_CC_BARRIER_CALLS_TESTING_H_
#define TFSCHED_CC_BARRIER_CALLS_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cc/barrier/calls.h"

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

inline std::shared_ptr<Joined> Drain(Calls* calls, const std::string& client = "c", bool returned = false) {
  auto drained = NewJoined();
  calls->Drain(client, drained->waiter, returned);
  return drained;
}

inline std::shared_ptr<Joined> DrainReturned(Calls* calls) { return Drain(calls, "c", true); }

// Whether no call, waiter or error is kept any more.
inline bool IsEmpty(const Calls& calls) {
  const Calls::Counters counters = calls.counters();
  return counters.outstanding == 0 && counters.queued == 0 && counters.held == 0 && counters.errors == 0;
}

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_CALLS_TESTING_H_
