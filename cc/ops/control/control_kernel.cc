// Kernels of the control ops.
#include <string>

#include "cc/barrier/background_steps.h"
#include "cc/core/log_level.h"
#include "cc/transport/runtime.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The smallest cap on the rate that is taken from another process: a lower one stops training as surely as a cut cable does.
// No credit can: one transfer always goes.
constexpr int64_t kSmallestRateBps = 1'000'000;

// To ask is no step of the program's.
void SetScalar(OpKernelContext* ctx, std::string text) {
  ProcessStepTimes().Forget(CountedStep(ctx->step_id()));
  Tensor* output = nullptr;
  OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape(), &output));
  output->scalar<tensorflow::tstring>()() = text;
}

class StatsKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override { SetScalar(ctx, StatsJson()); }
};

class TraceKernel : public OpKernel {
 public:
  explicit TraceKernel(OpKernelConstruction* ctx) : OpKernel(ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("clear", &clear_)); }
  void Compute(OpKernelContext* ctx) override {
    SetScalar(ctx, TraceJson());
    if (clear_) ProcessDispatcher().scheduler().ClearTrace();
  }

 private:
  bool clear_ = false;
};

class ConfigureKernel : public OpKernel {
 public:
  explicit ConfigureKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("policy", &policy_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("credit_bytes", &credit_bytes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rate_bps", &rate_bps_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("asker", &asker_));
  }

  void Compute(OpKernelContext* ctx) override {
    std::string refusal;
    if (rate_bps_ > 0 && rate_bps_ < kSmallestRateBps) {
      refusal = "rate_bps is " + std::to_string(rate_bps_) + ", which would all but stop training; give " +
                std::to_string(kSmallestRateBps) + " or more, or 0 (no cap).";
    } else if (!Configure(policy_, credit_bytes_, rate_bps_)) {
      refusal = "the policy is '" + policy_ + "', which this task does not have; install the same tfsched in all tasks.";
    }
    Log(ctx, refusal);
    OP_REQUIRES(ctx, refusal.empty(), tensorflow::errors::InvalidArgument("tfsched: ", refusal));
    SetScalar(ctx, StatsJson());
  }

 private:
  // Whoever reaches the port can ask. Neither the peer's address nor its session is known here: TensorFlow keeps them from
  // kernels, and a session's handle is empty unless its variables are its own. So the log has what the asker says of itself.
  void Log(OpKernelContext* ctx, const std::string& refusal) const {
    std::string what;
    if (!policy_.empty()) what += " policy=" + Quoted(policy_);
    if (credit_bytes_ > -2) what += " credit_bytes=" + std::to_string(credit_bytes_);
    if (rate_bps_ > -1) what += " rate_bps=" + std::to_string(rate_bps_);
    const auto* session = ctx->session_metadata();
    const std::string line = "configure(" + (what.empty() ? what : what.substr(1)) + ") of " + ctx->device()->name() +
                             ", asked for by " + (asker_.empty() ? "somebody who does not say who" : Quoted(asker_)) +
                             (session == nullptr ? "" : " in session " + Quoted(session->name()));
    if (refusal.empty()) {
      LOG(INFO) << "tfsched: " << line;
    } else {
      TFSCHED_WARNING << line << ": refused, " << refusal;
    }
  }

  // As it can stand in one line of a log.
  static std::string Quoted(const std::string& text) {
    constexpr size_t kLongest = 200;
    std::string quoted = "\"" + text.substr(0, kLongest) + "\"";
    for (char& c : quoted) {
      if (c < ' ' || c > '~') c = '?';
    }
    return quoted;
  }

  std::string asker_;
  std::string policy_;
  int64_t credit_bytes_ = 0;
  int64_t rate_bps_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("TfschedStats").Device(tensorflow::DEVICE_CPU), StatsKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedTrace").Device(tensorflow::DEVICE_CPU), TraceKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedConfigure").Device(tensorflow::DEVICE_CPU), ConfigureKernel);

}  // namespace
}  // namespace tfsched
