// The receive path: one RecvTensor call for each transfer, with memory for its bytes where its chunks' merge wants them.
#include "cc/transport/receiving.h"

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "cc/core/landing.h"
#include "cc/core/per_process.h"
#include "cc/core/thread_annotations.h"
#include "cc/transport/received_buffer.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/request_id.h"
#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tfsched {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::Device;
using tensorflow::Rendezvous;
using tensorflow::Tensor;
using tensorflow::WorkerCacheInterface;

// In the names of all nodes that tfsched sends from.
constexpr char kOurs[] = "tfsched/";

// The allocator of one transfer's tensor. Its first allocation is the tensor's place, if there is one of that size; every
// other one is the device's. A tensor keeps the bare pointer to its allocator, so this one lives until the last of them is
// freed: it counts them.
class LandingAllocator : public tensorflow::Allocator, public tensorflow::core::RefCounted {
 public:
  LandingAllocator(tensorflow::Allocator* device, std::shared_ptr<StepBlocks> blocks, std::string key)
      : device_(device), blocks_(std::move(blocks)), key_(std::move(key)) {}

  std::string Name() override { return "tfsched"; }

  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (!asked_ && alignment <= static_cast<size_t>(Block::kAlignment)) {
      asked_ = true;
      landing_ = blocks_->Take(ProcessLandings(), key_, static_cast<int64_t>(bytes));
      place_ = landing_.data();
      if (place_ != nullptr) {
        Ref();
        return place_;
      }
    }
    void* memory = device_->AllocateRaw(alignment, bytes);
    if (memory != nullptr) Ref();
    return memory;
  }

  void DeallocateRaw(void* memory) override {
    if (memory == place_) {
      place_ = nullptr;  // the same address may be the device's next one
      landing_ = {};
    } else {
      device_->DeallocateRaw(memory);
    }
    Unref();
  }

  // Of the tensor that has these bytes.
  Landing LandingOf(const void* bytes) const { return place_ != nullptr && bytes == place_ ? landing_ : Landing(); }

 private:
  ~LandingAllocator() override = default;

  tensorflow::Allocator* const device_;
  const std::shared_ptr<StepBlocks> blocks_;
  const std::string key_;
  bool asked_ = false;
  char* place_ = nullptr;
  Landing landing_;
};

// What a response allocates from: the receiving device, but for the allocator.
class LandingDevice : public tensorflow::DeviceBase {
 public:
  LandingDevice(Device* device, LandingAllocator* allocator)
      : DeviceBase(device->env()), device_(device), allocator_(allocator) {}
  const tensorflow::DeviceAttributes& attributes() const override { return device_->attributes(); }
  const std::string& name() const override { return device_->name(); }
  tensorflow::Allocator* GetAllocator(AllocatorAttributes) override { return allocator_; }

 private:
  Device* const device_;
  LandingAllocator* const allocator_;
};

bool OnHost(const Device& device, const AllocatorAttributes& attributes) {
  return attributes.on_host() || device.device_type() == tensorflow::DEVICE_CPU;
}

// One transfer on its way. The rendezvous knows it by its bare pointer from RegisterCall to DeregisterCall.
class Receive : public tensorflow::BaseRecvTensorCall {
 public:
  Receive(int64_t step_id, const Rendezvous::ParsedKey& key, const Rendezvous::Args& args, Device* device,
          std::shared_ptr<WorkerCacheInterface> cache, std::string sender, tensorflow::WorkerInterface* worker,
          const std::shared_ptr<StepBlocks>& blocks)
      : key_(std::string(key.FullKey())), cache_(std::move(cache)), sender_(std::move(sender)), worker_(worker) {
    request_.set_step_id(step_id);
    request_.set_rendezvous_key(key_);
    request_.set_request_id(tensorflow::GetUniqueRequestId());
    if (OnHost(*device, args.alloc_attrs) && std::string(key.edge_name).find(kOurs) != std::string::npos) {
      allocator_.reset(new LandingAllocator(device->GetAllocator(args.alloc_attrs), blocks, key_));
      device_ = std::make_unique<LandingDevice>(device, allocator_.get());
      response_.InitAlloc(device_.get(), args.alloc_attrs);
    } else {
      response_.InitAlloc(device, args.alloc_attrs);
    }
  }

  ~Receive() override { ReleaseWorker(); }

  void Start(std::function<void()> done) override {
    // An abort between RegisterCall and the call's own registration of its cancellation would be lost: it is looked for
    // again behind that. `done` may end this object's life, and waits until we have looked.
    auto looked = std::make_shared<std::promise<void>>();
    worker_->RecvTensorAsync(&options_, &request_, &response_,
                             [this, looked, done = std::move(done)](const absl::Status& status) {
                               looked->get_future().wait();
                               Update(status);
                               done();
                             });
    if (!status().ok()) options_.StartCancel();
    looked->set_value();
  }

  void StartAbort(const absl::Status& status) override {
    Update(status);
    options_.StartCancel();
  }

  absl::Status status() const override {
    tensorflow::mutex_lock lock(mu_);
    return status_;
  }

  // To be called before the rendezvous' callback, which may end the session and its workers.
  void ReleaseWorker() {
    if (worker_ != nullptr) cache_->ReleaseWorker(sender_, worker_);
    worker_ = nullptr;
  }

  bool is_dead() const { return response_.metadata().is_dead(); }

  // What has arrived; once.
  Tensor TakeTensor() {
    Tensor value = response_.tensor();
    if (allocator_ == nullptr || !value.IsInitialized() || !tensorflow::DMAHelper::CanUseDMA(&value) ||
        BufferOf(value) == nullptr) {
      return value;
    }
    response_.ClearTensor();
    return ViewOf<ReceivedBuffer>(value, BufferOf(value), key_, allocator_->LandingOf(value.data()));
  }

 private:
  void Update(const absl::Status& status) {
    tensorflow::mutex_lock lock(mu_);
    status_.Update(status);
  }

  const std::string key_;
  const std::shared_ptr<WorkerCacheInterface> cache_;
  const std::string sender_;
  tensorflow::WorkerInterface* worker_;
  tensorflow::core::RefCountPtr<LandingAllocator> allocator_;
  std::unique_ptr<LandingDevice> device_;
  tensorflow::CallOptions options_;
  tensorflow::RecvTensorRequest request_;
  tensorflow::TensorResponse response_;
  mutable tensorflow::mutex mu_;
  absl::Status status_ TFSCHED_GUARDED_BY(mu_);
};

class ReceivingRendezvous : public tensorflow::BaseRemoteRendezvous {
 public:
  ReceivingRendezvous(const tensorflow::WorkerEnv* env, int64_t step_id) : BaseRemoteRendezvous(env, step_id) {}

 protected:
  void RecvFromRemoteAsync(const Rendezvous::ParsedKey& key, const Rendezvous::Args& args, DoneCallback done) override {
    std::shared_ptr<Receive> receive;
    absl::Status status = Prepare(key, args, &receive);
    if (status.ok()) {
      RegisterCall(receive.get(), args);
      status = receive->status();
      if (!status.ok()) DeregisterCall(receive.get(), args);  // the step was aborted before
    }
    if (!status.ok()) {
      if (receive != nullptr) receive->ReleaseWorker();
      done(status, Rendezvous::Args(), args, Tensor(), false);
      return;
    }
    Ref();
    receive->Start([this, receive, args, done = std::move(done)] {
      DeregisterCall(receive.get(), args);
      const absl::Status status = receive->status();
      receive->ReleaseWorker();
      const bool is_dead = receive->is_dead();  // TakeTensor clears it
      done(status, Rendezvous::Args(), args, receive->TakeTensor(), is_dead);
      Unref();
    });
  }

 private:
  ~ReceivingRendezvous() override = default;

  absl::Status Prepare(const Rendezvous::ParsedKey& key, const Rendezvous::Args& args, std::shared_ptr<Receive>* receive) {
    std::string sender;
    std::string device_of_sender;
    const std::string source(key.src_device);
    if (!tensorflow::DeviceNameUtils::SplitDeviceName(source, &sender, &device_of_sender)) {
      return tensorflow::errors::Internal("tfsched: ", source, " is no device of another task.");
    }
    tensorflow::WorkerSession* const own = session();
    Device* device = nullptr;
    TF_RETURN_IF_ERROR(own->device_mgr()->LookupDevice(key.dst_device, &device));
    const std::shared_ptr<WorkerCacheInterface> cache = own->GetSharedWorkerCache();
    tensorflow::WorkerInterface* const worker = cache->GetOrCreateWorker(sender);
    if (worker == nullptr) return tensorflow::errors::Internal("tfsched: no task is known as ", sender, ".");
    *receive = std::make_shared<Receive>(step_id_, key, args, device, cache, sender, worker, blocks_);
    return absl::OkStatus();
  }

  const std::shared_ptr<StepBlocks> blocks_ = std::make_shared<StepBlocks>();
};

}  // namespace

Landings& ProcessLandings() {
  static PerProcess<Landings> landings;
  return landings.Get();
}

tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous> NewReceivingRendezvous(const tensorflow::WorkerEnv* env,
                                                                                int64_t step_id) {
  return tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous>(new ReceivingRendezvous(env, step_id));
}

}  // namespace tfsched
