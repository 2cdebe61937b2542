// The server of protocol "grpc+tfsched": stock TensorFlow's, with the scheduler in its send path.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/transport/capability.h"
#include "cc/transport/collective_group.h"
#include "cc/transport/collective_resolver.h"
#include "cc/transport/keepalive.h"
#include "cc/transport/rendezvous_mgr.h"
#include "cc/transport/runtime.h"
#include "cc/transport/send_backlog.h"
#include "cc/transport/servers.h"
#include "cc/transport/step_returns.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/distributed_runtime/master_env.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_channel.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_server_lib.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_worker_service.h"
#include "tensorflow/core/distributed_runtime/server_lib.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"
#include "tensorflow/core/public/session_options.h"

namespace tfsched {
namespace {

// The wire is unchanged, so peers may run stock "grpc". tfsched/server.py repeats the name.
constexpr char kProtocol[] = "grpc+tfsched";
// Grappler's name for the pass; cc/grappler/bridge.cc registers it.
constexpr char kPass[] = "tfsched";

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

  void GetStepSequenceAsync(const tensorflow::GetStepSequenceRequest* request, tensorflow::GetStepSequenceResponse* response,
                            tensorflow::StatusCallback done) override {
    if (AnswerWhetherReturned(*request, response)) return done(absl::OkStatus());
    GrpcWorker::GetStepSequenceAsync(request, response, std::move(done));
  }

  // Stock's collectives pass by the rendezvous manager; the emulated link has to see their bytes, too.
  void RecvBufAsync(tensorflow::CallOptions* opts, const tensorflow::RecvBufRequest* request,
                    tensorflow::RecvBufResponse* response, tensorflow::StatusCallback done) override {
    if (!ProcessDispatcher().emulated()) {
      GrpcWorker::RecvBufAsync(opts, request, response, std::move(done));
      return;
    }
    auto info = std::make_shared<TransferInfo>();
    info->name = request->buf_rendezvous_key();
    info->receiver = TaskOf(request->dst_device());
    info->policy = "fifo";
    CommTask task;
    task.info = std::move(info);
    task.sender = TaskOf(request->src_device());
    task.bytes = request->num_bytes();
    task.requested_us = ProcessDispatcher().NowUs();
    GrpcWorker::RecvBufAsync(opts, request, response,
                             [task = std::move(task), done = std::move(done)](const absl::Status& status) mutable {
                               if (!status.ok()) {
                                 done(status);
                                 return;
                               }
                               task.ready_us = ProcessDispatcher().NowUs();
                               // Of no step: this worker's may be over while its last bytes are on their way.
                               task.start = [done = std::move(done)](uint64_t id, bool) {
                                 done(absl::OkStatus());
                                 ProcessDispatcher().Finish(id);
                               };
                               ProcessDispatcher().Submit(std::move(task));
                             });
  }

 private:
  static std::string TaskOf(const std::string& device) { return device.substr(0, device.find("/device:")); }
};

// A session that does not ask for tfsched reads variables, too, and has to see whole steps. So the pass looks at its graphs
// and lets them wait for updates under way; it orders nothing. Sessions without Grappler are left alone.
void WatchReaders(tensorflow::SessionOptions* options) {
  auto* rewrite = options->config.mutable_graph_options()->mutable_rewrite_options();
  if (rewrite->disable_meta_optimizer()) return;
  for (const auto& optimizer : rewrite->custom_optimizers()) {
    if (optimizer.name() == kPass) return;
  }
  auto* optimizer = rewrite->add_custom_optimizers();
  optimizer->set_name(kPass);
  (*optimizer->mutable_parameter_map())["ordering"].set_s("none");
  rewrite->set_min_graph_nodes(-1);  // to read one variable takes fewer nodes than Grappler looks at by itself
}

class Server : public tensorflow::GrpcServer {
 public:
  explicit Server(const tensorflow::ServerDef& def) : GrpcServer(def, tensorflow::Env::Default()) {}

  // `devices`: a TensorFlow 2 program's own, which its server must serve; null for new ones.
  absl::Status Init(tensorflow::DeviceMgr* devices) {
    tensorflow::GrpcServerOptions options;
    options.local_device_mgr = devices;
    options.rendezvous_mgr_func = [](const tensorflow::WorkerEnv* env) { return new SchedulingRendezvousMgr(env); };
    options.collective_mgr_func =
        [task = "/job:" + server_def().job_name() + "/replica:" + std::to_string(server_def().replica()) +
                "/task:" + std::to_string(server_def().task_index())](
            const tensorflow::ConfigProto& config, const tensorflow::WorkerEnv* env,
            tensorflow::WorkerCacheInterface* workers) { return NewCollectiveExecutorMgr(config, env, workers, task); };
    options.worker_func = [](tensorflow::WorkerEnv* env, const tensorflow::ConfigProto& config) {
      return std::unique_ptr<tensorflow::GrpcWorker>(new Worker(env, config));
    };
    const absl::Status status = GrpcServer::Init(options);
    if (!status.ok()) return status;
    AddServer(worker_env(), Addresses());
    tensorflow::MasterEnv* master = master_env();
    master->master_session_factory = [stock = std::move(master->master_session_factory)](
                                         tensorflow::SessionOptions options, tensorflow::MasterEnv* env,
                                         std::unique_ptr<std::vector<std::unique_ptr<tensorflow::Device>>> devices,
                                         std::unique_ptr<tensorflow::WorkerCacheInterface> workers,
                                         std::unique_ptr<tensorflow::DeviceSet> device_set,
                                         std::vector<std::string> filtered_workers) {
      WatchReaders(&options);
      return stock(std::move(options), env, std::move(devices), std::move(workers), std::move(device_set),
                   std::move(filtered_workers));
    };
    if (const int64_t bytes = SendBacklogBytes(); bytes > 0) LimitSendBacklog(bound_port(), bytes);
    if (const int dscp = Dscp(); dscp > 0) MarkSent(bound_port(), dscp);
    return status;
  }

  // What is connected here, a step waits for.
  tensorflow::ChannelCreationFunction GetChannelCreationFunction() const override {
    return [create = GrpcServer::GetChannelCreationFunction()](const std::string& address) {
      KeepAlive(address);
      return create(address);
    };
  }

  // Of the cluster's tasks, as groups of collectives name them.
  std::map<std::string, std::string> Addresses() const {
    std::map<std::string, std::string> addresses;
    const std::string replica = "/replica:" + std::to_string(server_def().replica()) + "/task:";
    for (const auto& job : server_def().cluster().job()) {
      for (const auto& [task, address] : job.tasks()) {
        addresses["/job:" + job.name() + replica + std::to_string(task)] = address;
      }
    }
    return addresses;
  }

  ~Server() override {
    RemoveServer(worker_env());
    ForgetGroupsOf(worker_env());
  }
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
