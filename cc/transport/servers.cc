// The list of this process's servers.
#include "cc/transport/servers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

Mutex mu;

std::vector<tensorflow::WorkerEnv*>& Servers() TFSCHED_REQUIRES(mu) {
  static auto* servers = new std::vector<tensorflow::WorkerEnv*>;
  return *servers;
}

// By server, then by task.
std::map<const tensorflow::WorkerEnv*, std::map<std::string, std::string>>& Addresses() TFSCHED_REQUIRES(mu) {
  static auto* addresses = new std::map<const tensorflow::WorkerEnv*, std::map<std::string, std::string>>;
  return *addresses;
}

}  // namespace

void AddServer(tensorflow::WorkerEnv* env, std::map<std::string, std::string> addresses) {
  const MutexLock lock(&mu);
  Servers().push_back(env);
  Addresses()[env] = std::move(addresses);
}

void RemoveServer(tensorflow::WorkerEnv* env) {
  const MutexLock lock(&mu);
  auto& servers = Servers();
  servers.erase(std::remove(servers.begin(), servers.end(), env), servers.end());
  Addresses().erase(env);
}

int CountServers() {
  const MutexLock lock(&mu);
  return static_cast<int>(Servers().size());
}

std::string AddressOf(const tensorflow::WorkerEnv* env, const std::string& task) {
  const MutexLock lock(&mu);
  const auto server = Addresses().find(env);
  if (server == Addresses().end()) return "";
  const auto found = server->second.find(task);
  return found == server->second.end() ? "" : found->second;
}

tensorflow::WorkerEnv* ServerOf(const tensorflow::DeviceAttributes& device, tensorflow::Device** own) {
  const MutexLock lock(&mu);
  for (tensorflow::WorkerEnv* server : Servers()) {
    for (tensorflow::Device* candidate : server->device_mgr->ListDevices()) {
      if (candidate->attributes().incarnation() != device.incarnation() || candidate->name() != device.name()) continue;
      *own = candidate;
      return server;
    }
  }
  return nullptr;
}

bool IsLocal(const tensorflow::DeviceAttributes& device) {
  tensorflow::Device* own = nullptr;
  return ServerOf(device, &own) != nullptr;
}

absl::Status FindServer(const tensorflow::DeviceBase& device, tensorflow::WorkerEnv** env) {
  const auto* own = dynamic_cast<const tensorflow::Device*>(&device);
  if (own == nullptr) return tensorflow::errors::Internal("tfsched: the device ", device.name(), " is of no known kind.");
  const MutexLock lock(&mu);
  if (Servers().empty()) {
    return tensorflow::errors::FailedPrecondition(
        "tfsched: the process of ", own->name(), " has no tfsched server; start tfsched.Server there, or use barrier=True.");
  }
  for (tensorflow::WorkerEnv* server : Servers()) {
    for (tensorflow::Device* candidate : server->device_mgr->ListDevices()) {
      // A session that shares its variables borrows the server's devices or wraps them; the resources are the same.
      if (const_cast<tensorflow::Device*>(own)->resource_manager() != candidate->resource_manager()) continue;
      if (own->name() != candidate->name()) {
        return tensorflow::errors::FailedPrecondition("tfsched: the session calls the device ", candidate->name(), " ",
                                                      own->name(), "; give it the servers' cluster, or use barrier=True.");
      }
      *env = server;
      return absl::OkStatus();
    }
  }
  return tensorflow::errors::FailedPrecondition(
      "tfsched: the session on ", own->name(),
      " has variables of its own (isolate_session_state), which background updates cannot reach; "
      "set isolate_session_state=False, or use barrier=True.");
}

}  // namespace tfsched
