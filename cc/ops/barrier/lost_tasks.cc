// LostTask and AskForLostTask, with TensorFlow's own question for a task's status.
#include "cc/ops/barrier/lost_tasks.h"

#include <utility>

#include "cc/barrier/waiter.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/protobuf/worker.pb.h"

namespace tfsched {
namespace {

// What the tasks have answered so far; shared by the questions.
class Answers {
 public:
  Answers(size_t expected, std::function<void(const absl::Status&)> done) : waiter_(std::move(done)), missing_(expected) {}

  void Answer(const std::string& task, const absl::Status& status) {
    const bool refused = tensorflow::errors::IsUnavailable(status);
    absl::Status told;
    {
      const MutexLock lock(&mu_);
      // Any other answer than these two is a sign of life.
      if (refused || tensorflow::errors::IsDeadlineExceeded(status))
        lost_.Update(LostTask(task, "does not answer any more."));
      --missing_;
      if (!refused && missing_ > 0) return;
      told = lost_;
    }
    if (waiter_.Claim()) waiter_.Call(told);
  }

 private:
  Waiter<const absl::Status&> waiter_;
  Mutex mu_;
  size_t missing_ TFSCHED_GUARDED_BY(mu_);
  absl::Status lost_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace

absl::Status LostTask(const std::string& task, const std::string& what) {
  return tensorflow::errors::Unavailable("tfsched: ", task, " ", what,
                                         "\nAdditional GRPC error information from remote target ", task, ": no answer.");
}

void AskForLostTask(const std::shared_ptr<tensorflow::WorkerSession>& session, const std::vector<std::string>& tasks,
                    int64_t timeout_ms, std::function<void(const absl::Status&)> done) {
  if (tasks.empty()) return done(absl::OkStatus());
  tensorflow::WorkerCacheInterface* workers = session->worker_cache();
  auto answers = std::make_shared<Answers>(tasks.size(), std::move(done));
  for (const std::string& task : tasks) {
    tensorflow::WorkerInterface* worker = workers->GetOrCreateWorker(task);
    if (worker == nullptr) {
      answers->Answer(task, absl::OkStatus());
      continue;
    }
    auto options = std::make_shared<tensorflow::CallOptions>();
    auto request = std::make_shared<tensorflow::GetStatusRequest>();
    auto response = std::make_shared<tensorflow::GetStatusResponse>();
    options->SetTimeout(timeout_ms);
    worker->GetStatusAsync(
        options.get(), request.get(), response.get(), /*fail_fast=*/true,
        [answers, options, request, response, session, workers, task, worker](const absl::Status& status) {
          answers->Answer(task, status);
          workers->ReleaseWorker(task, worker);
        });
  }
}

}  // namespace tfsched
