// What the core schedules: one transfer that is ready to leave this process.
#ifndef TFSCHED_CC_CORE_COMM_TASK_H_
#define TFSCHED_CC_CORE_COMM_TASK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

namespace tfsched {

// The part of a tag that every step shares. Written once by the rewrite of the graph (the proxy op's attributes), read for
// each transfer, so it is shared and never copied. An all-reduce makes its own for each call.
struct TransferInfo {
  std::string name;      // the source tensor, "conv1/ReadVariableOp:0"
  std::string receiver;  // the receiving task, "/job:worker/replica:0/task:0"
  std::string policy;    // which policy orders it, "tictac"
  int rank = -1;         // 0..count-1 among the transfers of this sender to this receiver; -1: not ordered
  int count = 0;         // how many ordered transfers the graph has between the two tasks
  int64_t credit_bytes = 0;
  // Of all-reduces, whose steps share one step id: tells a tensor's turn from its next one. Not part of the tag.
  uint64_t call = 0;
};

// A CommTask in ByteScheduler's words (section 3.2). notify_ready() is Scheduler::Submit, start() hands the response to
// gRPC, notify_finish() is Scheduler::Finish.
struct CommTask {
  std::shared_ptr<const TransferInfo> info;
  std::string sender;
  int64_t step_id = 0;
  int64_t bytes = 0;
  int64_t requested_us = 0;  // the receiver asked
  int64_t ready_us = 0;      // and the tensor existed
  int64_t turn = 0;          // among equal ranks the smallest goes first; equal turns by arrival
  // Called exactly once, without any lock of the core held. `dropped` means that the step is over and nobody waits for the
  // bytes: the callee must answer its caller all the same. Otherwise it owes the scheduler a Finish(id).
  std::function<void(uint64_t id, bool dropped)> start;

  uint64_t id = 0;  // set by the scheduler
};

// Rank, turn, arrival: what priority queues order tasks by.
using QueuePlace = std::tuple<int, int64_t, uint64_t>;
inline QueuePlace PlaceOf(const CommTask& task) { return {task.info->rank, task.turn, task.id}; }

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_COMM_TASK_H_
