// When the transfers of a step become ready, as the last steps of the same link have shown it.
#ifndef TFSCHED_CC_CORE_READY_PROFILE_H_
#define TFSCHED_CC_CORE_READY_PROFILE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "cc/core/comm_task.h"

namespace tfsched {

// Prophet's profile (section 4.2) of one sender and one receiver. The authors train 50 iterations to make it; here it is
// made from the transfers themselves, while they are scheduled, and follows what changes.
//
// What stays the same from step to step is a transfer's name, its rank and how many transfers its graph has. So each graph
// has a profile of its own, and its transfers are found again by name and rank. A step is told by its id; all-reduces, which
// share one id, by their calls: a tensor that comes again with another call belongs to the next step.
//
// A transfer is expected only if it came in each of the last kTrusted steps. It is expected at the time from the latest
// arrival to it, not from the step's beginning: a step that is slow as a whole then costs one wrong prediction.
//
// A profile that predicts wrongly is left out for some steps, for twice as many each time. All memory is bounded. Not thread
// safe: the scheduler holds its lock.
class ReadyProfile {
 public:
  static constexpr int kTrusted = 3;              // steps in a row
  static constexpr size_t kMostTransfers = 4096;  // of a graph; larger ones are not predicted
  static constexpr size_t kMostGraphs = 8;        // the one that was used last goes last
  static constexpr size_t kMostOpen = 4;          // steps of which something may still come
  static constexpr int kMostLeftOut = 64;         // steps, after predictions that failed
  static constexpr int64_t kMostLateUs = 5000;    // behind its predicted time a transfer is waited for so long at most
  static constexpr int64_t kLateUs = 500;         // and so long, plus twice its usual error
  static constexpr int64_t kBurstUs = 1000;       // arrivals that are nearer say nothing about each other's prediction
  static constexpr double kNewest = 0.25;         // of a mean

  // A transfer that is to become ready.
  struct Coming {
    int64_t at_us = 0;     // the prediction
    int64_t error_us = 0;  // what it usually is off
    int64_t until_us = 0;  // when to wait for it no longer
    uint64_t step = 0;     // for Failed
  };

  // `task` has become ready.
  void Ready(const CommTask& task, int64_t now_us);

  // The next transfer more urgent than `rank` that is expected, of the steps that are under way.
  std::optional<Coming> Next(int rank, int64_t now_us);

  // A transfer of that step did not come in time although another was held back for it.
  void Failed(uint64_t step);

  // Nothing of the step will come any more.
  void StepEnded(int64_t step_id);

  // For tests of what is kept.
  size_t graphs() const { return graphs_.size(); }
  size_t open_steps() const { return open_.size(); }

 private:
  struct Transfer {
    int rank = 0;
    int steps = 0;         // in which it came, in a row
    double offset_us = 0;  // from the step's first arrival
    double error_us = 0;
  };
  struct Graph {
    std::unordered_map<uint64_t, Transfer> transfers;
    uint64_t used = 0;  // when, in arrivals that began a step
    int failed = 0;     // steps, less those that were predicted well
    int left_out = 0;   // steps that are not predicted any more
  };
  struct Arrival {
    int rank = 0;
    uint64_t call = 0;
    int64_t offset_us = 0;
  };
  struct Step {
    uint64_t number = 0;
    int64_t step_id = 0;
    int count = 0;  // which graph
    int64_t first_us = 0;
    int64_t last_us = 0;
    int64_t shift_us = 0;         // the latest arrival, against the profile
    int64_t shift_before_us = 0;  // and the latest one before the burst of arrivals that goes on
    bool shifted = false;         // whether anything that the profile knows has come
    bool predicted = false;
    bool failed = false;
    std::unordered_map<uint64_t, Arrival> came;
    std::set<std::tuple<int64_t, int, uint64_t>> expected;  // offset, rank, key
    std::unordered_map<uint64_t, uint64_t> calls_before;    // of the step before, where steps share an id
  };
  using Steps = std::list<Step>;

  Steps::iterator Find(const CommTask& task);
  Steps::iterator Begin(const CommTask& task, int64_t now_us);
  void Learn(const Step& step);
  Graph& GraphOf(int count);

  std::map<int, Graph> graphs_;  // by how many transfers they have
  Steps open_;                   // oldest first
  uint64_t next_step_ = 1;
};

// The profiles of a process's links, made when a policy asks for them.
class ReadyProfiles {
 public:
  using Link = std::pair<std::string, std::string>;  // sender, receiver

  explicit ReadyProfiles(size_t most = 1024) : most_(most) {}

  std::shared_ptr<ReadyProfile> Of(const Link& link);
  void StepEnded(int64_t step_id);

  size_t size() const { return profiles_.size(); }

 private:
  const size_t most_;
  std::map<Link, std::shared_ptr<ReadyProfile>> profiles_;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_READY_PROFILE_H_
