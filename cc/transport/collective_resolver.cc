// The server's manager of stock collectives; see collective_resolver.h.
#include "cc/transport/collective_resolver.h"

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
    CollectiveParamResolverDistributed::CompleteParamsAsync(
        Marked(device), params, cancellation, [env = env_, params, name = device.name(), done](const absl::Status& status) {
          if (status.ok() && params->instance.type == tensorflow::REDUCTION_COLLECTIVE) {
            NoteStockReduce(env, name, params->group, params->instance.instance_key);
          }
          done(status);
        });
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

}  // namespace

tensorflow::CollectiveExecutorMgrInterface* NewCollectiveExecutorMgr(const tensorflow::ConfigProto& config,
                                                                     const tensorflow::WorkerEnv* env,
                                                                     tensorflow::WorkerCacheInterface* workers,
                                                                     const std::string& task_name) {
  auto nccl = tensorflow::MaybeCreateNcclCommunicator(config);
  auto devices = std::make_unique<tensorflow::DeviceResolverDistributed>(env->device_mgr);
  auto resolver = std::make_unique<Resolver>(config, env, devices.get(), nccl.get(), workers, task_name);
  return new tensorflow::RpcCollectiveExecutorMgr(config, env->device_mgr, std::move(devices), std::move(resolver),
                                                  std::move(nccl), workers, task_name);
}

}  // namespace tfsched
