// How many steps this process took part in, and how long they took.
#ifndef TFSCHED_CC_CORE_STEP_TIMES_H_
#define TFSCHED_CC_CORE_STEP_TIMES_H_

#include <algorithm>
#include <cstdint>
#include <map>

#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// A step is a session's run, or a call of a function. TensorFlow says when it begins in a process, and when it ends. But it
// does not say when a function ends that is called in this process and has no other task's ops: that is how workers train
// which all-reduce. Its step is noticed by the kernels that serve its all-reduces, and lasts until the next one is noticed.
//
// Steps are numbers from 0 on. Background functions go on while the next step runs; they are no steps, and are given as
// negative numbers (background_steps.h). Thread safe.
class StepTimes {
 public:
  static constexpr size_t kMostOpen = 1024;  // the end of a step whose master has died is never told

  struct Counters {
    int64_t steps = 0;    // that have ended
    int64_t step_us = 0;  // how long these took, added up
  };

  void Begin(int64_t step, int64_t now_us) {
    if (step < 0) return;
    const MutexLock lock(&mu_);
    if (open_.size() >= kMostOpen) {
      open_.erase(
          std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
    }
    open_.emplace(step, now_us);
  }

  void End(int64_t step, int64_t now_us) {
    const MutexLock lock(&mu_);
    told_ = EndIfOpen(step, now_us) || told_;
  }

  // A kernel runs in this step: the one noticed before has ended. Nothing happens in a process that is told of steps' ends:
  // on a coordinator's workers a function has two numbers, its call's, whose end is told, and its kernels'.
  void Notice(int64_t step, int64_t now_us) {
    const MutexLock lock(&mu_);
    if (told_ || step == noticed_ || open_.count(step) == 0) return;
    EndIfOpen(noticed_, now_us);
    noticed_ = step;
  }

  // The step is not the program's: tfsched asks or waits for something in it.
  void Forget(int64_t step) {
    const MutexLock lock(&mu_);
    open_.erase(step);
  }

  Counters counters() const {
    const MutexLock lock(&mu_);
    return counters_;
  }

 private:
  bool EndIfOpen(int64_t step, int64_t now_us) TFSCHED_REQUIRES(mu_) {
    const auto found = open_.find(step);
    if (found == open_.end()) return false;
    ++counters_.steps;
    counters_.step_us += std::max<int64_t>(now_us - found->second, 0);
    open_.erase(found);
    return true;
  }

  mutable Mutex mu_;
  std::map<int64_t, int64_t> open_ TFSCHED_GUARDED_BY(mu_);  // step -> when it began
  int64_t noticed_ TFSCHED_GUARDED_BY(mu_) = -1;
  bool told_ TFSCHED_GUARDED_BY(mu_) = false;  // of the end of a step
  Counters counters_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_STEP_TIMES_H_
