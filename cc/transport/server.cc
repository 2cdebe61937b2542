// The server of protocol "grpc+tfsched": stock TensorFlow's, with the scheduler in its send path.
#include <memory>
#include <utility>

#include "cc/transport/capability.h"
#include "cc/transport/rendezvous_mgr.h"
#include "cc/transport/runtime.h"
#include "cc/transport/send_backlog.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_server_lib.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_worker_service.h"
#include "tensorflow/core/distributed_runtime/server_lib.h"
#include "tensorflow/core/platform/env.h"

namespace tfsched {
namespace {

// The wire is unchanged, so peers may run stock "grpc". tfsched/server.py repeats the name.
constexpr char kProtocol[] = "grpc+tfsched";

// A pass must not put tfsched's ops on a task that does not know them. So the answer to a master's first question, which
// devices are there, says that this task does.
class Worker : public tensorflow::GrpcWorker {
 public:
  using GrpcWorker::GrpcWorker;

  void GetStatusAsync(tensorflow::CallOptions* opts, const tensorflow::GetStatusRequest* request,
                      tensorflow::GetStatusResponse* response, bool fail_fast, tensorflow::StatusCallback done) override {
    GrpcWorker::GetStatusAsync(opts, request, response, fail_fast,
                               [response, done = std::move(done)](const absl::Status& status) {
                                 for (auto& device : *response->mutable_device_attributes()) MarkCapable(&device);
                                 done(status);
                               });
  }
};

class Server : public tensorflow::GrpcServer {
 public:
  explicit Server(const tensorflow::ServerDef& def) : GrpcServer(def, tensorflow::Env::Default()) {}

  // `devices`: a TensorFlow 2 program's own, which its server must serve; null for new ones.
  absl::Status Init(tensorflow::DeviceMgr* devices) {
    tensorflow::GrpcServerOptions options;
    options.local_device_mgr = devices;
    options.rendezvous_mgr_func = [](const tensorflow::WorkerEnv* env) { return new SchedulingRendezvousMgr(env); };
    options.worker_func = [](tensorflow::WorkerEnv* env, const tensorflow::ConfigProto& config) {
      return std::unique_ptr<tensorflow::GrpcWorker>(new Worker(env, config));
    };
    const absl::Status status = GrpcServer::Init(options);
    if (!status.ok()) return status;
    AddServer(worker_env());
    if (const int64_t bytes = SendBacklogBytes(); bytes > 0) LimitSendBacklog(bound_port(), bytes);
    return status;
  }

  ~Server() override { RemoveServer(worker_env()); }
};

class ServerFactory : public tensorflow::ServerFactory {
 public:
  bool AcceptsOptions(const tensorflow::ServerDef& def) override { return def.protocol() == kProtocol; }

  absl::Status NewServer(const tensorflow::ServerDef& def, const Options& options,
                         std::unique_ptr<tensorflow::ServerInterface>* out) override {
    auto server = std::make_unique<Server>(def);
    absl::Status status = server->Init(options.local_device_mgr);
    if (!status.ok()) return status;
    *out = std::move(server);
    return status;
  }
};

struct Registrar {
  Registrar() { tensorflow::ServerFactory::Register("TFSCHED_SERVER", new ServerFactory()); }
} registrar;

}  // namespace
}  // namespace tfsched
