// Runs a function over the cluster independently of any session: what a background call needs to outlive its step.
#ifndef TFSCHED_CC_OPS_BARRIER_FUNCTION_RUNTIME_H_
#define TFSCHED_CC_OPS_BARRIER_FUNCTION_RUNTIME_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/barrier/launch.h"
#include "cc/barrier/waiter.h"
#include "cc/ops/barrier/task_session.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/common_runtime/process_function_library_runtime.h"
#include "tensorflow/core/distributed_runtime/cluster_function_library_runtime.h"
#include "tensorflow/core/distributed_runtime/worker_env.h"
#include "tensorflow/core/distributed_runtime/worker_session.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace tfsched {

// All that is needed to make a FunctionRuntime, without pointers to what belongs to a session.
struct FunctionSpec {
  tensorflow::WorkerEnv* env = nullptr;  // the server's, which lives as long as the process
  tensorflow::NameAttrList function;
  std::string home;  // the device that passes the arguments
  int graph_def_version = 0;
  tensorflow::ConfigProto config;
  std::shared_ptr<const tensorflow::FunctionLibraryDefinition> library;
};

// One function, instantiated on the devices that it names: here over the server's own (legacy) session, on other tasks in a
// session of its own. It needs no session of the master. Thread safe. Its last reference may be dropped anywhere, also in
// its own callbacks: it is destroyed elsewhere.
class FunctionRuntime {
 public:
  // Blocks: asks each task that the function names which devices it has (for `timeout_us` at most) and registers the
  // function there. Must not run on a thread that others wait for.
  static absl::Status Make(const FunctionSpec& spec, int64_t timeout_us, std::shared_ptr<FunctionRuntime>* made);

  // One execution, which may be cancelled. Keeps its runtime alive. To be held by a shared_ptr.
  class Execution : public std::enable_shared_from_this<Execution> {
   public:
    Execution(std::shared_ptr<FunctionRuntime> runtime, int64_t step_id);

    // Starts it with `arguments`; calls `done` once, from any thread. Once.
    void Start(std::vector<tensorflow::Tensor> arguments, std::function<void(const absl::Status&)> done);

    // Ends it early, here and on the other tasks, from any thread at any time. Before Start: it will fail there.
    void Cancel();

   private:
    void CarryOutCancel();
    void TellOthers(int64_t again_us);

    const std::shared_ptr<FunctionRuntime> runtime_;
    tensorflow::FunctionLibraryRuntime::Options options_;
    std::unique_ptr<tensorflow::ScopedStepContainer> container_;
    std::vector<tensorflow::Tensor> arguments_;
    std::vector<tensorflow::Tensor> results_;
    Launch launch_;
    tensorflow::CancellationManager manager_;  // first to go: its destruction still calls what the function has registered
  };

  tensorflow::WorkerEnv* env() const { return spec_.env; }

 private:
  using Clock = std::chrono::steady_clock;
  using Ending = Waiter<const absl::Status&>;  // of one execution

  explicit FunctionRuntime(const FunctionSpec& spec);

  static void WaitForEnd(const std::weak_ptr<FunctionRuntime>& weak, const std::shared_ptr<Ending>& ending,
                         Clock::time_point deadline);

  absl::Status FindDevices(int64_t timeout_us);
  absl::Status Instantiate();
  void CancelElsewhere(int64_t step_id);

  const FunctionSpec spec_;
  // In the order in which they need each other.
  std::shared_ptr<tensorflow::WorkerSession> session_;
  TaskSession task_session_;
  tensorflow::DynamicDeviceMgr devices_;
  std::vector<std::string> other_tasks_;
  std::unique_ptr<tensorflow::ClusterFunctionLibraryRuntime> cluster_;
  std::unique_ptr<tensorflow::ProcessFunctionLibraryRuntime> process_;
  tensorflow::FunctionLibraryRuntime* home_ = nullptr;
  tensorflow::FunctionLibraryRuntime::Handle handle_ = 0;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_BARRIER_FUNCTION_RUNTIME_H_
