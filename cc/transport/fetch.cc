// One RecvTensor call by itself; see fetch.h.
#include "cc/transport/fetch.h"

#include <utility>

#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/request_id.h"
#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

constexpr size_t kPlaceAlignment = 64;

// Gives the place to the first who asks for its size, and the device's memory to anybody else.
class PlaceAllocator : public tensorflow::Allocator {
 public:
  PlaceAllocator(tensorflow::Allocator* device, void* place, int64_t bytes)
      : device_(device), place_(place), bytes_(bytes) {}
  std::string Name() override { return "tfsched"; }
  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (!given_ && alignment <= kPlaceAlignment && static_cast<int64_t>(bytes) == bytes_ &&
        reinterpret_cast<uintptr_t>(place_) % kPlaceAlignment == 0) {
      given_ = true;
      return place_;
    }
    return device_->AllocateRaw(alignment, bytes);
  }
  void DeallocateRaw(void* memory) override {
    if (memory != place_) device_->DeallocateRaw(memory);
  }

 private:
  tensorflow::Allocator* const device_;
  void* const place_;
  const int64_t bytes_;
  bool given_ = false;
};

class PlaceDevice : public tensorflow::DeviceBase {
 public:
  PlaceDevice(tensorflow::Device* device, tensorflow::Allocator* allocator)
      : DeviceBase(device->env()), device_(device), allocator_(allocator) {}
  const tensorflow::DeviceAttributes& attributes() const override { return device_->attributes(); }
  const std::string& name() const override { return device_->name(); }
  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes) override { return allocator_; }

 private:
  tensorflow::Device* const device_;
  tensorflow::Allocator* const allocator_;
};

struct Call {
  Call(const FetchRequest& what, FetchDone when_done)
      : session(what.session), cache(session->GetSharedWorkerCache()), task(what.task), done(std::move(when_done)) {
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    if (what.place != nullptr) {
      allocator = std::make_unique<PlaceAllocator>(what.device->GetAllocator(on_host), what.place, what.place_bytes);
      device = std::make_unique<PlaceDevice>(what.device, allocator.get());
      response.InitAlloc(device.get(), on_host);
    } else {
      response.InitAlloc(what.device, on_host);
    }
    request.set_step_id(what.step_id);
    request.set_rendezvous_key(what.key);
    request.set_request_id(tensorflow::GetUniqueRequestId());
  }

  const std::shared_ptr<tensorflow::WorkerSession> session;
  const std::shared_ptr<tensorflow::WorkerCacheInterface> cache;
  const std::string task;
  FetchDone done;
  tensorflow::WorkerInterface* worker = nullptr;
  std::unique_ptr<PlaceAllocator> allocator;  // outlives the response's tensor
  std::unique_ptr<PlaceDevice> device;
  tensorflow::CallOptions options;
  tensorflow::RecvTensorRequest request;
  tensorflow::TensorResponse response;
};

}  // namespace

void Fetch(const FetchRequest& request, FetchDone done) {
  auto call = std::make_shared<Call>(request, std::move(done));
  call->worker = call->cache->GetOrCreateWorker(call->task);
  if (call->worker == nullptr) {
    call->done(tensorflow::errors::Internal("tfsched: no task is known as ", call->task, "."), tensorflow::Tensor());
    return;
  }
  call->worker->RecvTensorAsync(&call->options, &call->request, &call->response, [call](const absl::Status& status) {
    call->cache->ReleaseWorker(call->task, call->worker);
    const FetchDone finished = std::move(call->done);
    finished(status, status.ok() ? call->response.tensor() : tensorflow::Tensor());
  });
}

}  // namespace tfsched
