// The server's manager of stock collectives: tells members of tfsched, and hears what stock collectives do.
#ifndef TFSCHED_CC_TRANSPORT_COLLECTIVE_RESOLVER_H_
#define TFSCHED_CC_TRANSPORT_COLLECTIVE_RESOLVER_H_

#include <cstdint>
#include <string>

#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_env.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace tfsched {

// As the stock server makes it, but for three things: the attributes by which this process's devices enter a group say that
// they run tfsched (capability.h), all-reduces that stock TensorFlow begins are noted, and an abort ends our groups as well.
// `task_name`: "/job:worker/replica:0/task:0".
tensorflow::CollectiveExecutorMgrInterface* NewCollectiveExecutorMgr(const tensorflow::ConfigProto& config,
                                                                     const tensorflow::WorkerEnv* env,
                                                                     tensorflow::WorkerCacheInterface* workers,
                                                                     const std::string& task_name);

// CollectiveCall's step of an op that has this executor: the session's step, or 0 of functions, which share one executor.
// `executor` may be null.
int64_t StepOf(const tensorflow::CollectiveExecutor* executor);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_COLLECTIVE_RESOLVER_H_
