// TfschedBackgroundCall, the kernel: launches the background function, and leaves it running when the step ends.
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/barrier/background_steps.h"
#include "cc/barrier/waiter.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/function_runtime.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/ops/barrier/update_order.h"
#include "cc/transport/barrier.h"
#include "cc/transport/runtime.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/distributed_runtime/rendezvous_mgr_interface.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// How long a task that the function uses may take to answer at the first call. A stopped task never does, and no RPC here
// has a limit.
constexpr int64_t kDevicesTimeoutUs = 30'000'000;
constexpr int64_t kMakeTimeoutUs = 60'000'000;

using FunctionRecord = tensorflow::core::RefCountPtr<tensorflow::FunctionRecord>;

// The runtimes of one kernel, one for each graph of the session that has its node. A runtime whose function has failed is
// thrown away: a task may have been restarted, and its devices be others under the same names. What it has on other tasks
// goes with it (TaskSession).
class Runtimes {
 public:
  std::shared_ptr<FunctionRuntime> Find(const FunctionRecord& record) {
    const MutexLock lock(&mu_);
    for (const Entry& entry : entries_) {
      if (entry.record.get() == record.get()) return entry.runtime;
    }
    return nullptr;
  }

  // The record is kept, so that its address stands for this function for as long as the runtime is kept.
  void Add(FunctionRecord record, std::shared_ptr<FunctionRuntime> runtime) {
    const MutexLock lock(&mu_);
    entries_.push_back({std::move(record), std::move(runtime)});
  }

  void Remove(const std::shared_ptr<FunctionRuntime>& runtime) {
    const MutexLock lock(&mu_);
    entries_.remove_if([&](const Entry& entry) { return entry.runtime == runtime; });
  }

 private:
  struct Entry {
    FunctionRecord record;
    std::shared_ptr<FunctionRuntime> runtime;
  };
  Mutex mu_;
  std::list<Entry> entries_ TFSCHED_GUARDED_BY(mu_);
};

// One call of the kernel: lives until its answer is given, or the function is launched. Uses nothing of the kernel, which
// may be gone.
struct Request {
  OpKernelContext* context = nullptr;
  AsyncOpKernel::DoneCallback done;
  std::string client;
  tensorflow::NameAttrList function;
  std::shared_ptr<Runtimes> runtimes;
  std::vector<int64_t> ids;
  RunNumber number;
  tensorflow::WorkerEnv* env = nullptr;

  void Fail(const absl::Status& status) const {
    context->SetStatus(status);
    done();
  }
};

// The function is over: first the error is recorded, then its traces in this process go; the expectations with it.
void Finish(int64_t token, const std::shared_ptr<FunctionRuntime>& runtime, const std::shared_ptr<Runtimes>& runtimes,
            const absl::Status& status) {
  if (!status.ok()) runtimes->Remove(runtime);
  ProcessCalls().Done(token, OutcomeOf(status));
  runtime->env()->rendezvous_mgr->Cleanup(StepOfToken(token));
}

void Launch(const Request& request, int64_t token, const std::shared_ptr<FunctionRuntime>& runtime) {
  auto execution = std::make_shared<FunctionRuntime::Execution>(runtime, StepOfToken(token));
  // Called when the step is cancelled, and when its manager is destroyed at its normal end.
  const CancelHook hook(request.context);
  const bool registered = hook.Register([token, execution] {
    if (ProcessCalls().EndStep(token)) execution->Cancel();
  });
  if (!registered) {
    ProcessCalls().Abandon(token);
    request.Fail(tensorflow::errors::Cancelled("tfsched: the step was cancelled."));
    return;
  }
  Tensor argument(tensorflow::DT_INT64, TensorShape());
  argument.scalar<int64_t>()() = token;
  std::vector<Tensor> arguments{argument};
  for (const int64_t id : request.ids) {
    arguments.push_back(OrderOf(token, id, request.number));
  }
  request.context->set_output(0, argument);
  request.done();
  execution->Start(std::move(arguments), [token, execution, runtime, runtimes = request.runtimes](
                                             const absl::Status& status) { Finish(token, runtime, runtimes, status); });
}

// Makes the runtime on a thread of its own, for that takes RPCs; whatever happens there, the step gets its answer in time.
void MakeAndLaunch(const Request& request, int64_t token, FunctionRecord record) {
  using Made = Waiter<const absl::Status&, std::shared_ptr<FunctionRuntime>>;
  FunctionLibraryRuntime* library = request.context->function_library();
  FunctionSpec spec;
  spec.env = request.env;
  spec.function = request.function;
  spec.home = library->device()->name();
  spec.graph_def_version = library->graph_def_version();
  if (library->config_proto() != nullptr) spec.config = *library->config_proto();
  spec.library = std::make_shared<const tensorflow::FunctionLibraryDefinition>(*library->GetFunctionLibraryDefinition());

  const CancelHook hook(request.context);
  auto shared_record = std::make_shared<FunctionRecord>(std::move(record));
  auto made = std::make_shared<Made>(
      [request, token, hook, shared_record](const absl::Status& status, std::shared_ptr<FunctionRuntime> runtime) {
        hook.Drop();
        if (!status.ok()) {
          ProcessCalls().Abandon(token);
          request.Fail(status);
          return;
        }
        request.runtimes->Add(std::move(*shared_record), runtime);
        Launch(request, token, runtime);
      });
  const auto give_up = [made](const absl::Status& status) {
    if (made->Claim()) made->Call(status, nullptr);
  };
  if (!hook.Register([give_up] { give_up(tensorflow::errors::Cancelled("tfsched: the step was cancelled.")); })) {
    give_up(tensorflow::errors::Cancelled("tfsched: the step was cancelled."));
    return;
  }
  ProcessAlarm().After(kMakeTimeoutUs, [give_up, env = request.env->env] {
    // What follows is the step's business, not the alarm's.
    env->SchedClosure([give_up] {
      give_up(tensorflow::errors::DeadlineExceeded("tfsched: the background update could not be prepared within ",
                                                   kMakeTimeoutUs / 1000000, " s; see whether every task runs."));
    });
  });
  request.env->env->SchedClosure([spec = std::move(spec), made] {
    std::shared_ptr<FunctionRuntime> runtime;
    const absl::Status status = FunctionRuntime::Make(spec, kDevicesTimeoutUs, &runtime);
    if (made->Claim()) made->Call(status, std::move(runtime));
  });
}

class BackgroundCallKernel : public AsyncOpKernel {
 public:
  explicit BackgroundCallKernel(OpKernelConstruction* context)
      : AsyncOpKernel(context), runtimes_(std::make_shared<Runtimes>()) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("f", &function_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    FunctionLibraryRuntime* library = context->function_library();
    OP_REQUIRES_ASYNC(context, library != nullptr && context->cancellation_manager() != nullptr,
                      tensorflow::errors::Internal("tfsched: TfschedBackgroundCall needs a session's step."), done);
    ProcessStepTimes().Notice(CountedStep(context->step_id()), ProcessDispatcher().NowUs());
    std::vector<int64_t> ids(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) OP_REQUIRES_OK_ASYNC(context, ElementOf(context, i, &ids[i]), done);
    Request request{context, std::move(done), client_, function_, runtimes_, std::move(ids), {}, nullptr};
    request.number = ProcessRunNumbers().Next(client_);
    const absl::Status found = FindServer(*library->device(), &request.env);
    if (!found.ok()) return request.Fail(found);

    const CancelHook hook(context);
    const std::string client = client_;  // this kernel may be gone when Begin returns
    auto beginner = std::make_shared<Calls::Beginner>([request, hook](const Outcome& outcome, int64_t token) {
      hook.Drop();
      if (!outcome.ok()) return request.Fail(StatusOf(outcome));
      // The step is ours until its `done`, and with it its library.
      FunctionLibraryRuntime* library = request.context->function_library();
      FunctionRecord record = library->GetFunctionLibraryDefinition()->FindRecord(request.function.name());
      if (record == nullptr) {
        ProcessCalls().Abandon(token);
        return request.Fail(tensorflow::errors::NotFound("tfsched: the graph has no function ", request.function.name()));
      }
      const auto runtime = request.runtimes->Find(record);
      if (runtime != nullptr) return Launch(request, token, runtime);
      MakeAndLaunch(request, token, std::move(record));
    });
    const auto cancel = [client, beginner] { ProcessCalls().CancelBegin(client, beginner); };
    if (!hook.Register(cancel)) return cancel();
    ProcessCalls().Begin(client, beginner);
  }

 private:
  std::string client_;
  tensorflow::NameAttrList function_;
  // Shared with the calls that outlive the kernel.
  const std::shared_ptr<Runtimes> runtimes_;
};

REGISTER_KERNEL_BUILDER(Name("TfschedBackgroundCall").Device(tensorflow::DEVICE_CPU), BackgroundCallKernel);

}  // namespace
}  // namespace tfsched
