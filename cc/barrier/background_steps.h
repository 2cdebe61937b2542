// Tells the steps of background functions from all others.
#ifndef TFSCHED_CC_BARRIER_BACKGROUND_STEPS_H_
#define TFSCHED_CC_BARRIER_BACKGROUND_STEPS_H_

#include <cstdint>

namespace tfsched {

// A background function runs in the step of its token's negative (StepOfToken). Steps of sessions are positive. Those of
// functions that a program calls are random and negative as well, so tokens end in a mark: one function's step in 65,536
// does, too. That only matters where steps are counted.
constexpr int64_t kTokenMark = 0x7f5c;
constexpr int64_t kTokenMarkBits = 0xffff;

// A token out of 64 random bits: positive, and below 2^62.
constexpr int64_t TokenFrom(uint64_t random) { return (static_cast<int64_t>(random >> 2) & ~kTokenMarkBits) | kTokenMark; }

constexpr bool IsBackgroundStep(int64_t step_id) {
  return step_id < 0 && (-static_cast<uint64_t>(step_id) & kTokenMarkBits) == kTokenMark;
}

// By what StepTimes knows a step: a number from 0 on, -1 for a background function's.
constexpr int64_t CountedStep(int64_t step_id) { return IsBackgroundStep(step_id) ? -1 : step_id & INT64_MAX; }

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_BACKGROUND_STEPS_H_
