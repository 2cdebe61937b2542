// The send path: reads a tensor's tag and lets the scheduler decide when gRPC gets it.
#include "cc/transport/rendezvous_mgr.h"

#include <memory>
#include <string>
#include <utility>

#include "cc/barrier/background_steps.h"
#include "cc/transport/barrier.h"
#include "cc/transport/collective_group.h"
#include "cc/transport/link_probe.h"
#include "cc/transport/receiving.h"
#include "cc/transport/runtime.h"
#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tfsched {
namespace {

using tensorflow::Rendezvous;
using tensorflow::Tensor;

// gRPC copies tensors up to this size when they are encoded (kLargeTensorBytes in grpc_tensor_coding.cc), so their buffers
// say nothing about the wire.
constexpr int64_t kCopiedBytes = 1024;

std::string TaskOf(const tensorflow::DeviceNameUtils::ParsedName& device) {
  return "/job:" + device.job + "/replica:" + std::to_string(device.replica) + "/task:" + std::to_string(device.task);
}

// What the worker service passed and what the rendezvous answered; alive until the answer is given.
struct Response {
  Rendezvous::DoneCallback done;
  Rendezvous::Args send_args;
  Rendezvous::Args recv_args;
  Tensor value;
  bool is_dead = false;

  // The rendezvous drops its references to the contexts when its callback returns, which is before we are done.
  void KeepContexts() {
    if (send_args.device_context != nullptr) send_args.device_context->Ref();
    if (recv_args.device_context != nullptr) recv_args.device_context->Ref();
  }
  ~Response() {
    if (send_args.device_context != nullptr) send_args.device_context->Unref();
    if (recv_args.device_context != nullptr) recv_args.device_context->Unref();
  }
};

bool HasSharedBytes(const Tensor& value) {
  return value.IsInitialized() && tensorflow::DMAHelper::CanUseDMA(&value) &&
         tensorflow::DMAHelper::buffer(&value) != nullptr && static_cast<int64_t>(value.TotalBytes()) > kCopiedBytes;
}

// Hands the response to gRPC; `released` is called when gRPC no longer holds its bytes.
void Answer(const Response& response, std::function<void()> released) {
  if (!HasSharedBytes(response.value)) {
    response.done(absl::OkStatus(), response.send_args, response.recv_args, response.value, response.is_dead);
    released();
    return;
  }
  const Tensor watched = ViewOf<ReleaseBuffer>(response.value, BufferOf(response.value), std::move(released));
  response.done(absl::OkStatus(), response.send_args, response.recv_args, watched, response.is_dead);
}

// Queues the response; gRPC gets it when the scheduler says so.
void Schedule(std::shared_ptr<const TransferInfo> info, int64_t turn, std::string sender, int64_t step_id,
              int64_t requested_us, std::shared_ptr<Response> response) {
  CommTask task;
  task.info = std::move(info);
  task.turn = turn;
  task.sender = std::move(sender);
  task.step_id = step_id;
  task.bytes = static_cast<int64_t>(response->value.TotalBytes());
  task.requested_us = requested_us;
  task.ready_us = ProcessDispatcher().NowUs();
  task.start = [response = std::move(response)](uint64_t id, bool dropped) {
    if (dropped) {
      response->done(tensorflow::errors::Aborted("tfsched: the step ended before the transfer was sent."),
                     response->send_args, response->recv_args, Tensor(), false);
    } else {
      Answer(*response, [id] { ProcessDispatcher().Finish(id); });
    }
  };
  ProcessDispatcher().Submit(std::move(task));
}

// Hands the response to gRPC at once and only records it.
void Bypass(std::string name, std::string sender, std::string receiver, int64_t step_id, int64_t requested_us,
            const Response& response) {
  Dispatcher& dispatcher = ProcessDispatcher();
  TransferRecord record;
  record.name = std::move(name);
  record.sender = std::move(sender);
  record.receiver = std::move(receiver);
  record.step_id = step_id;
  record.bytes = response.value.IsInitialized() ? static_cast<int64_t>(response.value.TotalBytes()) : 0;
  record.requested_us = requested_us;
  record.ready_us = record.started_us = dispatcher.NowUs();
  const uint64_t number = dispatcher.scheduler().RecordBypassed(std::move(record));
  Answer(response, [number, &dispatcher] { dispatcher.scheduler().FinishBypassed(number, dispatcher.NowUs()); });
}

}  // namespace

SchedulingRendezvousMgr::SchedulingRendezvousMgr(const tensorflow::WorkerEnv* env) : RpcRendezvousMgr(env), env_(env) {}

void SchedulingRendezvousMgr::RecvLocalAsync(int64_t step_id, const Rendezvous::ParsedKey& parsed,
                                             Rendezvous::DoneCallback done) {
  if (AnswerForGroup(env_, step_id, parsed, done)) return;
  // The emulated link has to see every byte; else what is measured before the training is no transfer of it.
  if (!ProcessDispatcher().emulated() && AnswerProbe(parsed, done)) return;
  const int64_t requested_us = ProcessDispatcher().NowUs();
  const Rendezvous::DoneCallback answer = [step_id, requested_us, key = parsed, done = std::move(done)](
                                              const absl::Status& status, const Rendezvous::Args& send_args,
                                              const Rendezvous::Args& recv_args, const Tensor& value, bool is_dead) {
    if (!status.ok()) {
      done(status, send_args, recv_args, value, is_dead);
      return;
    }
    auto response = std::make_shared<Response>();
    response->done = done;
    response->send_args = send_args;
    response->recv_args = recv_args;
    response->KeepContexts();
    response->value = value;
    response->is_dead = is_dead;
    if (!is_dead && value.IsInitialized()) {
      if (auto* tagged = dynamic_cast<TaggedBuffer*>(BufferOf(value))) {
        Schedule(tagged->info(), tagged->turn(), TaskOf(key.src), step_id, requested_us, std::move(response));
        return;
      }
    }
    if (ProcessDispatcher().emulated()) {
      // The emulated link has to see every byte.
      auto info = std::make_shared<TransferInfo>();
      info->name = std::string(key.edge_name);
      info->receiver = TaskOf(key.dst);
      info->policy = "fifo";
      Schedule(std::move(info), /*turn=*/0, TaskOf(key.src), step_id, requested_us, std::move(response));
      return;
    }
    Bypass(std::string(key.edge_name), TaskOf(key.src), TaskOf(key.dst), step_id, requested_us, *response);
  };
  if (!AnswerProbe(parsed, answer)) RpcRendezvousMgr::RecvLocalAsync(step_id, parsed, answer);
}

tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous> SchedulingRendezvousMgr::Create(int64_t step_id,
                                                                                         const tensorflow::WorkerEnv* env) {
  ProcessStepTimes().Begin(CountedStep(step_id), ProcessDispatcher().NowUs());
  return NewReceivingRendezvous(env, step_id);
}

void SchedulingRendezvousMgr::Cleanup(int64_t step_id) {
  ProcessDispatcher().EndStep(step_id);
  ProcessStepTimes().End(CountedStep(step_id), ProcessDispatcher().NowUs());
  EndBackgroundStep(step_id);
  RpcRendezvousMgr::Cleanup(step_id);
}

}  // namespace tfsched
