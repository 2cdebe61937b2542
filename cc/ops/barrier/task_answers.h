// The answers of several tasks to a question that each was sent.
#ifndef TFSCHED_CC_OPS_BARRIER_TASK_ANSWERS_H_
#define TFSCHED_CC_OPS_BARRIER_TASK_ANSWERS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "cc/ops/barrier/lost_tasks.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/platform/status.h"

namespace tfsched {

// Shared with the questions, which outlive whoever asked: a task that hangs may answer later. Thread safe.
class TaskAnswers {
 public:
  using Devices = std::vector<std::unique_ptr<tensorflow::Device>>;

  explicit TaskAnswers(const std::vector<std::string>& tasks) : missing_(tasks.begin(), tasks.end()) {}

  void Answer(const std::string& task, const absl::Status& status, Devices devices = {}) {
    const MutexLock lock(&mu_);
    status_.Update(status);
    for (auto& device : devices) devices_.push_back(std::move(device));
    missing_.erase(task);
    changed_.NotifyAll();
  }

  // Waits until all have answered, or one with an error; what they have answered.
  absl::Status Wait(int64_t timeout_us, Devices* devices = nullptr) {
    const auto deadline = CondVar::Clock::now() + std::chrono::microseconds(timeout_us);
    const MutexLock lock(&mu_);
    while (!missing_.empty() && status_.ok() && changed_.WaitUntil(&mu_, deadline)) {
    }
    if (!status_.ok()) return status_;
    if (!missing_.empty()) {
      return LostTask(*missing_.begin(), "did not answer within " + std::to_string(timeout_us / 1000000) +
                                             " s, so the background update cannot start; see whether the task runs.");
    }
    if (devices != nullptr) *devices = std::move(devices_);
    return absl::OkStatus();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::set<std::string> missing_ TFSCHED_GUARDED_BY(mu_);
  absl::Status status_ TFSCHED_GUARDED_BY(mu_);
  Devices devices_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_BARRIER_TASK_ANSWERS_H_
