// The servers of this process: what a kernel needs of them to run functions on the cluster.
#ifndef TFSCHED_CC_TRANSPORT_SERVERS_H_
#define TFSCHED_CC_TRANSPORT_SERVERS_H_

#include <map>
#include <string>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/distributed_runtime/worker_env.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/status.h"

namespace tfsched {

// A server with the scheduler in its send path has started, or goes. `addresses`: "HOST:PORT" of the tasks of its cluster,
// by names like "/job:worker/replica:0/task:0".
void AddServer(tensorflow::WorkerEnv* env, std::map<std::string, std::string> addresses);
void RemoveServer(tensorflow::WorkerEnv* env);

int CountServers();

// Where a task of the server's cluster listens; "" if it is not known.
std::string AddressOf(const tensorflow::WorkerEnv* env, const std::string& task);

// Which of this process's servers has the device, by whichever name or proxy it goes in a cluster, and the server's device;
// nullptr if none has.
tensorflow::WorkerEnv* ServerOf(const tensorflow::DeviceAttributes& device, tensorflow::Device** own);
bool IsLocal(const tensorflow::DeviceAttributes& device);

// The server whose variables a kernel on `device` sees. Several servers may live in one process. Fails, with a sentence for
// the user, if there is none: no server of ours, or a session that has its variables for itself.
absl::Status FindServer(const tensorflow::DeviceBase& device, tensorflow::WorkerEnv** env);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_SERVERS_H_
