// Finds out which task of a cluster no longer answers, and names it as TensorFlow does.
#ifndef TFSCHED_CC_OPS_BARRIER_LOST_TASKS_H_
#define TFSCHED_CC_OPS_BARRIER_LOST_TASKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/distributed_runtime/worker_session.h"
#include "tensorflow/core/platform/status.h"

namespace tfsched {

// An UnavailableError of `task`, "/job:ps/replica:0/task:0", that reads "tfsched: <task> <what>". A ClusterCoordinator takes
// an UnavailableError that comes from a worker for that worker's failure, and then waits until all tasks are there again,
// for ever if a server is lost. What makes it a server's failure is that the message names the server as a failed RPC does.
absl::Status LostTask(const std::string& task, const std::string& what);

// Asks each task for a sign of life. Calls `done` once, from any thread: with LostTask of the first one whose connection is
// refused, at once; else, when all have answered or `timeout_ms` has passed, with LostTask of one that has not, or OK.
void AskForLostTask(const std::shared_ptr<tensorflow::WorkerSession>& session, const std::vector<std::string>& tasks,
                    int64_t timeout_ms, std::function<void(const absl::Status&)> done);

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_BARRIER_LOST_TASKS_H_
