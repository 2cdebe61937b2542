// What the tests and the benchmark of the core share: tasks to schedule.
#ifndef TFSCHED_CC_CORE_TESTING_H_
#define TFSCHED_CC_CORE_TESTING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/comm_task.h"
#include "cc/core/scheduler.h"

namespace tfsched {

// The group that a test's task belongs to, and what its policy is told.
struct GroupSpec {
  std::string policy = "tictac";
  int count = 1;
  int64_t credit_bytes = 0;
  int64_t step_id = 1;
  std::string receiver = "/job:worker/replica:0/task:0";
  std::string sender = "/job:ps/replica:0/task:0";
};

inline GroupSpec Spec(int count, int64_t credit_bytes = 0) {
  GroupSpec spec;
  spec.count = count;
  spec.credit_bytes = credit_bytes;
  return spec;
}

inline CommTask TaskOf(const GroupSpec& group, int rank, int64_t bytes = 1) {
  auto info = std::make_shared<TransferInfo>();
  info->name = "layer" + std::to_string(rank) + "/ReadVariableOp:0";
  info->receiver = group.receiver;
  info->policy = group.policy;
  info->rank = rank;
  info->count = group.count;
  info->credit_bytes = group.credit_bytes;
  CommTask task;
  task.info = std::move(info);
  task.sender = group.sender;
  task.step_id = group.step_id;
  task.bytes = bytes;
  return task;
}

// What Poll starts at `now_us`.
inline std::vector<Start> PollAt(Scheduler* scheduler, int64_t now_us) {
  std::vector<Start> starts;
  scheduler->Poll(now_us, &starts);
  return starts;
}

inline std::vector<int> Ranks(const std::vector<Start>& starts) {
  std::vector<int> ranks;
  for (const Start& start : starts) ranks.push_back(start.task.info->rank);
  return ranks;
}

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_TESTING_H_
