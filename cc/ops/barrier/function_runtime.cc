// FunctionRuntime: TensorFlow's multi-device functions, over a server's own session.
#include "cc/ops/barrier/function_runtime.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "cc/core/per_process.h"
#include "cc/ops/barrier/lost_tasks.h"
#include "cc/ops/barrier/task_answers.h"
#include "cc/transport/barrier.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/distributed_runtime/remote_device.h"
#include "tensorflow/core/distributed_runtime/rendezvous_mgr_interface.h"
#include "tensorflow/core/distributed_runtime/session_mgr.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tfsched {
namespace {

using tensorflow::Device;
using tensorflow::DeviceNameUtils;

constexpr int kBackgroundThreads = 4;

// TensorFlow puts "tf_" in front. Linux refuses a name of more than 15 characters, and the threads would keep that of the
// thread that made them, as if they were the step's own.
constexpr char kBackgroundName[] = "tfsched_back";

// The threads on which the background function runs at home. Not the step's: where that computes on all of its threads, the
// background function would not get to send what the step has put until the step is over.
tensorflow::thread::ThreadPool* BackgroundPool(tensorflow::Env* env) {
  static PerProcess<tensorflow::thread::ThreadPool> pool;
  return &pool.Get([env] { return new tensorflow::thread::ThreadPool(env, kBackgroundName, kBackgroundThreads); });
}

// "/job:ps/replica:0/task:1" of a device; "" if the name does not say which task.
std::string TaskOfDevice(const std::string& device) {
  DeviceNameUtils::ParsedName name;
  if (!DeviceNameUtils::ParseFullName(device, &name) || !name.has_job || !name.has_task) return "";
  return "/job:" + name.job + "/replica:" + std::to_string(name.has_replica ? name.replica : 0) +
         "/task:" + std::to_string(name.task);
}

void AddTasks(const tensorflow::FunctionDef& function, std::set<std::string>* tasks) {
  for (const auto& node : function.node_def()) {
    const std::string task = TaskOfDevice(node.device());
    if (!task.empty()) tasks->insert(task);
  }
}

// How long a failed execution may take to end everywhere, and how often its tasks are asked meanwhile whether they live.
constexpr std::chrono::seconds kEndTimeout(15);
constexpr int64_t kAskUs = 1'000'000;

// How long a task that was told to end its part waits until it is told again, at first.
constexpr int64_t kTellAgainUs = 500'000;

absl::Status NotEnded() {
  return tensorflow::errors::Unavailable(
      "tfsched: a part of the background update failed, and the other parts did not end within ", kEndTimeout.count(),
      " s.");
}

}  // namespace

absl::Status FunctionRuntime::Make(const FunctionSpec& spec, int64_t timeout_us, std::shared_ptr<FunctionRuntime>* made) {
  std::shared_ptr<FunctionRuntime> runtime(new FunctionRuntime(spec), [env = spec.env->env](FunctionRuntime* gone) {
    // Not here: "here" may be a callback of the very runtime.
    env->SchedClosure([gone] { delete gone; });
  });
  runtime->session_ = spec.env->session_mgr->LegacySession();
  absl::Status status = runtime->FindDevices(timeout_us);
  if (status.ok()) status = runtime->task_session_.Open(runtime->other_tasks_, timeout_us);
  if (status.ok()) status = runtime->Instantiate();
  if (status.ok()) *made = std::move(runtime);
  return status;
}

absl::Status FunctionRuntime::FindDevices(int64_t timeout_us) {
  const tensorflow::FunctionDef* function = spec_.library->Find(spec_.function.name());
  if (function == nullptr) return tensorflow::errors::NotFound("tfsched: the graph has no function ", spec_.function.name());
  std::set<std::string> tasks;
  AddTasks(*function, &tasks);
  const tensorflow::FunctionLibraryDefinition called = spec_.library->ReachableDefinitions(*function);
  for (const std::string& name : called.ListFunctionNames()) AddTasks(*called.Find(name), &tasks);
  tasks.erase(TaskOfDevice(spec_.home));
  other_tasks_.assign(tasks.begin(), tasks.end());

  auto answers = std::make_shared<TaskAnswers>(other_tasks_);
  for (const std::string& task : other_tasks_) {
    tensorflow::NewRemoteDevices(
        spec_.env->env, session_->worker_cache(), task,
        [answers, task, session = session_](const absl::Status& status, std::vector<Device*>* found) {
          TaskAnswers::Devices devices;
          if (status.ok()) {
            for (Device* device : *found) devices.emplace_back(device);
          }
          answers->Answer(task, status, std::move(devices));
        });
  }
  TaskAnswers::Devices devices;
  TF_RETURN_IF_ERROR(answers->Wait(timeout_us, &devices));
  // The placer wants this task's devices among the cluster's; no need to ask ourselves.
  for (Device* device : spec_.env->device_mgr->ListDevices()) {
    devices.push_back(tensorflow::NewRemoteDevice(spec_.env->env, device->attributes()));
  }
  return devices_.AddDevices(std::move(devices));
}

absl::Status FunctionRuntime::Instantiate() {
  cluster_ = std::make_unique<tensorflow::ClusterFunctionLibraryRuntime>(task_session_.get(),
                                                                         /*create_worker_session_called=*/true, &devices_);
  tensorflow::Rendezvous::Factory rendezvous(
      [env = spec_.env, session = session_](const int64_t step_id, const tensorflow::DeviceMgr*,
                                            tsl::core::RefCountPtr<tensorflow::Rendezvous>* made) -> absl::Status {
        auto rendezvous = env->rendezvous_mgr->Find(step_id);
        const absl::Status status = rendezvous->Initialize(session.get());
        if (status.ok()) *made = std::move(rendezvous);
        return status;
      });
  process_ = std::make_unique<tensorflow::ProcessFunctionLibraryRuntime>(
      spec_.env->device_mgr, spec_.env->env, &spec_.config, spec_.graph_def_version, spec_.library.get(),
      tensorflow::OptimizerOptions(), BackgroundPool(spec_.env->env), cluster_.get(), /*session_metadata=*/nullptr,
      std::move(rendezvous));
  home_ = process_->GetFLR(spec_.home);
  if (home_ == nullptr) return tensorflow::errors::Internal("tfsched: ", spec_.home, " is no device of this server.");

  const auto& signature = spec_.library->Find(spec_.function.name())->signature();
  if (signature.input_arg_size() < 1) {
    return tensorflow::errors::InvalidArgument("tfsched: the background function ", spec_.function.name(),
                                               " has no input; its first must be the token.");
  }
  tensorflow::FunctionLibraryRuntime::InstantiateOptions options;
  options.target = spec_.home;
  options.is_multi_device_function = true;
  options.input_devices.assign(signature.input_arg_size(), spec_.home);
  options.output_devices.assign(signature.output_arg_size(), spec_.home);
  return home_->Instantiate(spec_.function.name(), tensorflow::AttrSlice(&spec_.function.attr()), options, &handle_);
}

// Tells the other tasks that the step is over. Without that, an op there that waits for nothing but the step that was to
// feed it would wait for ever: a master ends a step's remote parts this way, a function's are not ended at all.
void FunctionRuntime::CancelElsewhere(int64_t step_id) {
  tensorflow::WorkerCacheInterface* workers = session_->worker_cache();
  for (const std::string& task : other_tasks_) {
    tensorflow::WorkerInterface* worker = workers->GetOrCreateWorker(task);
    if (worker == nullptr) continue;
    auto request = std::make_shared<tensorflow::CleanupGraphRequest>();
    auto response = std::make_shared<tensorflow::CleanupGraphResponse>();
    request->set_step_id(step_id);
    worker->CleanupGraphAsync(request.get(), response.get(),
                              [request, response, session = session_, workers, task, worker](const absl::Status&) {
                                workers->ReleaseWorker(task, worker);
                              });
  }
}

FunctionRuntime::FunctionRuntime(const FunctionSpec& spec) : spec_(spec), task_session_(spec.env, TaskOfDevice(spec.home)) {}

FunctionRuntime::Execution::Execution(std::shared_ptr<FunctionRuntime> runtime, int64_t step_id)
    : runtime_(std::move(runtime)), options_(step_id), launch_([this] { CarryOutCancel(); }) {
  tensorflow::ResourceMgr* resources = runtime_->home_->device()->resource_manager();
  container_ = std::make_unique<tensorflow::ScopedStepContainer>(
      step_id, [resources](const std::string& name) { resources->Cleanup(name).IgnoreError(); });
  options_.step_container = container_.get();
  options_.cancellation_manager = &manager_;
  options_.source_device = runtime_->spec_.home;
  options_.allow_dead_tensors = true;
  // No runner and no rendezvous: the step's own die with it. The runtime uses its pool, and its factory.
}

// Ends the wait for a failed execution as soon as one of its tasks is known to be lost, or at the deadline. What has failed
// is not told before all has ended, so the tasks are asked. Does not keep the runtime, which has a whole function's graphs:
// it goes when the execution is over.
void FunctionRuntime::WaitForEnd(const std::weak_ptr<FunctionRuntime>& weak, const std::shared_ptr<Ending>& ending,
                                 Clock::time_point deadline) {
  if (ending->claimed()) return;  // as after every good end, when the cancellation manager goes
  ProcessAlarm().After(kAskUs, [weak, ending, deadline] {
    const auto runtime = weak.lock();
    if (runtime == nullptr || ending->claimed()) return;
    tensorflow::Env* env = runtime->env()->env;
    env->SchedClosure([runtime, env, weak, ending, deadline] {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      AskForLostTask(runtime->session_, runtime->other_tasks_, std::max<int64_t>(left.count(), 1),
                     [env, weak, ending, deadline](const absl::Status& lost) {
                       if (lost.ok() && Clock::now() < deadline) return WaitForEnd(weak, ending, deadline);
                       if (!ending->Claim()) return;
                       // Not on the thread that carries the answers of TensorFlow's own questions.
                       env->SchedClosure([ending, lost] { ending->Call(lost.ok() ? NotEnded() : lost); });
                     });
    });
  });
}

void FunctionRuntime::Execution::Start(std::vector<tensorflow::Tensor> arguments,
                                       std::function<void(const absl::Status&)> done) {
  // When a part has failed, TensorFlow cancels the others and then, before it calls back, asks every task to clean up. To a
  // task that has died or hangs that question may stay unanswered until the task is back: nobody shall wait for that.
  const std::weak_ptr<Execution> weak = weak_from_this();
  auto ending = std::make_shared<Ending>([weak, done](const absl::Status& status) {
    if (const auto self = weak.lock()) self->launch_.End();
    done(status);
  });
  const auto limit = [ending, runtime = std::weak_ptr<FunctionRuntime>(runtime_)] {
    WaitForEnd(runtime, ending, Clock::now() + kEndTimeout);
  };
  const bool started = launch_.Start([&] {
    if (!manager_.RegisterCallback(manager_.get_cancellation_token(), limit)) limit();
    // TensorFlow holds this execution through `done`, until it has called back itself.
    arguments_ = std::move(arguments);
    runtime_->home_->Run(options_, runtime_->handle_, arguments_, &results_, [ending, done](const absl::Status& status) {
      if (ending->Claim()) ending->Call(status);
    });
  });
  if (!started && ending->Claim()) ending->Call(tensorflow::errors::Cancelled("tfsched: the step was cancelled."));
}

void FunctionRuntime::Execution::Cancel() { launch_.Cancel(); }

void FunctionRuntime::Execution::CarryOutCancel() {
  manager_.StartCancel();
  EndBackgroundStep(options_.step_id);
  TellOthers(kTellAgainUs);
}

// The news may come to a task before its part has begun there, for they travel apart. A part that begins later would never
// hear of it, so the task is told again until all has ended.
void FunctionRuntime::Execution::TellOthers(int64_t again_us) {
  runtime_->CancelElsewhere(options_.step_id);
  ProcessAlarm().After(again_us, [weak = weak_from_this(), again_us, env = runtime_->env()->env] {
    const auto self = weak.lock();
    if (self == nullptr || !self->launch_.ending()) return;
    env->SchedClosure([self, again_us] { self->TellOthers(2 * again_us); });
  });
}

}  // namespace tfsched
