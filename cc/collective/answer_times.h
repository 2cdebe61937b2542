// How long the members of a group take to answer a question of this one: what a link's latency adds to every message.
#ifndef TFSCHED_CC_COLLECTIVE_ANSWER_TIMES_H_
#define TFSCHED_CC_COLLECTIVE_ANSWER_TIMES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// A member that still computes answers late, so the shortest time counts of each. Thread safe.
class AnswerTimes {
 public:
  AnswerTimes(size_t members, int me) : me_(me), shortest_us_(members, 0) {}

  void Answered(int peer, int64_t took_us) {
    const MutexLock lock(&mu_);
    int64_t& shortest = shortest_us_[peer];
    took_us = std::max<int64_t>(took_us, 1);
    shortest = shortest == 0 ? took_us : std::min(shortest, took_us);
  }

  // Of the peer that is farthest away; 0 until all have answered.
  int64_t FarthestUs() const {
    const MutexLock lock(&mu_);
    int64_t farthest = 0;
    for (size_t member = 0; member < shortest_us_.size(); ++member) {
      if (static_cast<int>(member) == me_) continue;
      if (shortest_us_[member] == 0) return 0;
      farthest = std::max(farthest, shortest_us_[member]);
    }
    return farthest;
  }

 private:
  const int me_;
  mutable Mutex mu_;
  std::vector<int64_t> shortest_us_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_ANSWER_TIMES_H_
