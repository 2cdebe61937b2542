// The server's manager of stock collectives; see collective_resolver.h.
#include "cc/transport/collective_resolver.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/transport/capability.h"
#include "cc/transport/collective_group.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/collective_param_resolver_distributed.h"
#include "tensorflow/core/distributed_runtime/device_resolver_distributed.h"
#include "tensorflow/core/distributed_runtime/rpc_collective_executor_mgr.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/nccl/collective_communicator.h"

namespace tfsched {
namespace {

using tensorflow::CancellationManager;
using tensorflow::CollectiveParams;
using tensorflow::CollGroupParams;
using tensorflow::DeviceAttributes;

class Resolver : public tensorflow::CollectiveParamResolverDistributed {
 public:
  Resolver(const tensorflow::ConfigProto& config, const tensorflow::WorkerEnv* env,
           tensorflow::DeviceResolverDistributed* devices, tensorflow::NcclCommunicatorInterface* nccl,
           tensorflow::WorkerCacheInterface* workers, const std::string& task_name)
      : CollectiveParamResolverDistributed(config, env->device_mgr, devices, nccl, workers, task_name), env_(env) {}

  void CompleteGroupAsync(const DeviceAttributes& device, CollGroupParams* group, CancellationManager* cancellation,
                          const tensorflow::StatusCallback& done) override {
    CollectiveParamResolverDistributed::CompleteGroupAsync(Marked(device), group, cancellation, done);
  }

  void CompleteParamsAsync(const DeviceAttributes& device, CollectiveParams* params, CancellationManager* cancellation,
                           const tensorflow::StatusCallback& done) override {
    CollectiveParamResolverDistributed::CompleteParamsAsync(Marked(device), params, cancellation, done);
  }

  void StartAbort(const absl::Status& why) override {
    CollectiveParamResolverDistributed::StartAbort(why);
    BreakGroupsOf(env_, why);
  }

 private:
  // Others' devices, for which their servers ask the leader of the group, say themselves what they run.
  DeviceAttributes Marked(DeviceAttributes device) const {
    tensorflow::Device* own = nullptr;
    if (env_->device_mgr->LookupDevice(device.name(), &own).ok() &&
        own->attributes().incarnation() == device.incarnation() &&
        own->attributes().physical_device_desc() == device.physical_device_desc()) {
      MarkCapable(&device);
    }
    return device;
  }

  const tensorflow::WorkerEnv* const env_;
};

// A step's stock executor, but for noting the all-reduces that it begins: only here it is known in which step.
class Executor : public tensorflow::CollectiveExecutor {
 public:
  Executor(tensorflow::CollectiveExecutorMgrInterface* manager, const tensorflow::WorkerEnv* env,
           tensorflow::CollectiveExecutor* stock, int64_t step_id)
      : CollectiveExecutor(manager), env_(env), stock_(stock), step_id_(step_id) {}
  ~Executor() override { stock_->Unref(); }

  int64_t step_id() const { return step_id_; }

  void StartAbort(const absl::Status& why) override { stock_->StartAbort(why); }

  void ExecuteAsync(tensorflow::OpKernelContext* context, const CollectiveParams* params, const std::string& key,
                    tensorflow::StatusCallback done) override {
    if (params->instance.type == tensorflow::REDUCTION_COLLECTIVE) {
      NoteStockReduce(env_, context->device()->name(), params->group, params->instance.instance_key, step_id_);
    }
    stock_->ExecuteAsync(context, params, key, std::move(done));
  }

  void CompleteParamsAsync(const DeviceAttributes& device, CollectiveParams* params, CancellationManager* cancellation,
                           tensorflow::StatusCallback done) override {
    stock_->CompleteParamsAsync(device, params, cancellation, std::move(done));
  }

  tensorflow::CollectiveRemoteAccess* remote_access() override { return stock_->remote_access(); }
  void RunClosure(std::function<void()> closure) override { stock_->RunClosure(std::move(closure)); }
  void WaitForDependencies(const CollectiveParams& params) override { stock_->WaitForDependencies(params); }
  void UnblockDependencies(const CollectiveParams& params) override { stock_->UnblockDependencies(params); }

 private:
  const tensorflow::WorkerEnv* const env_;
  tensorflow::CollectiveExecutor* const stock_;  // one reference is ours
  const int64_t step_id_;
};

class Manager : public tensorflow::RpcCollectiveExecutorMgr {
 public:
  template <typename... Arguments>
  explicit Manager(const tensorflow::WorkerEnv* env, Arguments&&... arguments)
      : RpcCollectiveExecutorMgr(std::forward<Arguments>(arguments)...), env_(env) {}

 protected:
  tensorflow::CollectiveExecutor* Create(int64_t step_id) override {
    return new Executor(this, env_, RpcCollectiveExecutorMgr::Create(step_id), step_id);
  }

 private:
  const tensorflow::WorkerEnv* const env_;
};

}  // namespace

int64_t StepOf(const tensorflow::CollectiveExecutor* executor) {
  const auto* ours = dynamic_cast<const Executor*>(executor);
  return ours == nullptr ? 0 : ours->step_id();
}

tensorflow::CollectiveExecutorMgrInterface* NewCollectiveExecutorMgr(const tensorflow::ConfigProto& config,
                                                                     const tensorflow::WorkerEnv* env,
                                                                     tensorflow::WorkerCacheInterface* workers,
                                                                     const std::string& task_name) {
  auto nccl = tensorflow::MaybeCreateNcclCommunicator(config);
  auto devices = std::make_unique<tensorflow::DeviceResolverDistributed>(env->device_mgr);
  auto resolver = std::make_unique<Resolver>(config, env, devices.get(), nccl.get(), workers, task_name);
  return new Manager(env, config, env->device_mgr, std::move(devices), std::move(resolver), std::move(nccl), workers,
                     task_name);
}

}  // namespace tfsched
