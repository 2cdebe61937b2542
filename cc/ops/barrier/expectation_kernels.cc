// TfschedExpect, TfschedNotify, TfschedWait: the kernels on parameter servers.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/transport/barrier.h"
#include "cc/transport/handle_table.h"
#include "cc/transport/servers.h"
#include "cc/transport/step_returns.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// The key of the variable whose handle input `index` is.
absl::Status VariableOf(OpKernelContext* context, int index, std::string* key) {
  tensorflow::ResourceHandle handle;
  TF_RETURN_IF_ERROR(HandleOf(context, index, &handle));
  *key = KeyOf(handle);
  return absl::OkStatus();
}

class ExpectKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit ExpectKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &client_));
    OP_REQUIRES_OK(context, context->GetAttr("shared", &shared_));
  }

  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    OP_REQUIRES_OK(context, TokenOf(context, 0, &token));
    std::vector<std::string> keys(context->num_inputs() - 1);
    for (size_t i = 0; i < keys.size(); ++i) OP_REQUIRES_OK(context, VariableOf(context, static_cast<int>(i) + 1, &keys[i]));
    const auto tickets = ProcessExpectations().Expect(client_, keys, token, shared_);
    // The background function's part on this device has a manager of its own, which is cancelled or destroyed when the part
    // ends, however it ends.
    const auto end = [tickets] { ProcessExpectations().End(tickets); };
    const CancelHook hook(context);
    if (context->cancellation_manager() == nullptr || !hook.Register(end)) {
      end();
      context->SetStatus(tensorflow::errors::Cancelled("tfsched: the background update was cancelled."));
      return;
    }
    context->set_output(0, context->input(0));
  }

 private:
  std::string client_;
  bool shared_ = false;
};

class NotifyKernel : public OpKernel {
 public:
  bool IsExpensive() override { return false; }
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    std::string key;
    OP_REQUIRES_OK(context, TokenOf(context, 0, &token));
    OP_REQUIRES_OK(context, VariableOf(context, 1, &key));
    ProcessExpectations().Complete(key, token);
  }
};

// Waits for the updates of all variables that are the kernel's inputs.
class WaitKernel : public AsyncOpKernel {
 public:
  bool IsExpensive() override { return false; }
  explicit WaitKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("client", &reader_.client));
    if (reader_.client.empty()) reader_.scope = Expectations::Scope::kAll;
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    if (ProcessExpectations().Idle(context->num_inputs())) return done();
    std::vector<std::string> keys(context->num_inputs());
    for (size_t i = 0; i < keys.size(); ++i) {
      OP_REQUIRES_OK_ASYNC(context, VariableOf(context, static_cast<int>(i), &keys[i]), done);
    }
    // A step has one such kernel for each variable, and most are updated by then: these need nothing of what a wait needs.
    if (ProcessExpectations().Settled(reader_, keys)) return done();
    const Expectations::Reader reader = reader_;  // this kernel may be gone when Wait returns
    tensorflow::WorkerEnv* env = nullptr;
    FindServer(*context->device(), &env).IgnoreError();  // without a server nobody expects anything here
    const CancelHook hook(context);
    const auto began_us = tensorflow::Env::Default()->NowMicros();
    auto wait = std::make_shared<AllOf>(context->num_inputs(),
                                        [context, hook, began_us, done = std::move(done)](const Outcome& outcome) {
                                          hook.Drop();
                                          const auto now_us = tensorflow::Env::Default()->NowMicros();
                                          CountWait(now_us > began_us ? static_cast<int64_t>(now_us - began_us) : 0);
                                          if (!outcome.ok()) context->SetStatus(StatusOf(outcome));
                                          done();
                                        });
    using Waiters = std::vector<std::pair<std::string, std::shared_ptr<Expectations::WaitWaiter>>>;
    auto waiters = std::make_shared<Waiters>();
    for (std::string& key : keys) {
      waiters->emplace_back(std::move(key), std::make_shared<Expectations::WaitWaiter>(
                                                [wait](const Outcome& outcome) { wait->End(outcome); }));
    }
    const auto cancel = [waiters] {
      for (const auto& [key, waiter] : *waiters) ProcessExpectations().CancelWait(key, waiter);
    };
    if (!hook.Register(cancel)) return cancel();
    std::map<Expectations::Doubt, Waiters> doubts;
    for (const auto& [key, waiter] : *waiters) {
      for (const auto& doubt : ProcessExpectations().Wait(reader, key, waiter)) doubts[doubt].emplace_back(key, waiter);
    }
    for (auto& [doubt, those] : doubts) {
      if (env == nullptr) break;
      AskWhetherReturned(env, doubt.home, doubt.token,
                         [token = doubt.token, those = std::move(those)](const absl::Status& status, bool returned) {
                           // A home that cannot be asked is lost or cut off, and its step with it: the ticket will end.
                           if (!status.ok()) return;
                           if (returned) return ProcessExpectations().Returned(token);
                           for (const auto& [key, waiter] : those) ProcessExpectations().NotReturned(token, key, waiter);
                         });
    }
  }

 private:
  // Calls back when so many parts have ended, with the first error.
  class AllOf {
   public:
    AllOf(int parts, std::function<void(const Outcome&)> done) : left_(parts), done_(std::move(done)) {}

    void End(const Outcome& outcome) {
      Outcome first;
      {
        const MutexLock lock(&mu_);
        if (outcome_.ok()) outcome_ = outcome;
        if (--left_ > 0) return;
        first = outcome_;
      }
      done_(first);
    }

   private:
    Mutex mu_;
    int left_ TFSCHED_GUARDED_BY(mu_);
    Outcome outcome_ TFSCHED_GUARDED_BY(mu_);
    const std::function<void(const Outcome&)> done_;
  };

  Expectations::Reader reader_;
};

REGISTER_KERNEL_BUILDER(Name("TfschedExpect").Device(tensorflow::DEVICE_CPU), ExpectKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedNotify").Device(tensorflow::DEVICE_CPU), NotifyKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedWait").Device(tensorflow::DEVICE_CPU), WaitKernel);

}  // namespace
}  // namespace tfsched
