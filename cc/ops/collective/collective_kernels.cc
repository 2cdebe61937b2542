// TfschedAgree, TfschedAllReduce and TfschedAllReduceIfAgreed, the kernels.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/barrier/background_steps.h"
#include "cc/collective/layout.h"
#include "cc/ops/barrier/async.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/transport/all_reduce.h"
#include "cc/transport/collective_counts.h"
#include "cc/transport/collective_resolver.h"
#include "cc/transport/runtime.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A loop's turns are different calls: stock TensorFlow tells them apart by these two numbers as well.
std::string TurnOf(const OpKernelContext& context) {
  const auto frame = context.frame_iter();
  return std::to_string(frame.frame_id) + "." + std::to_string(frame.iter_id);
}

absl::Status CancelledCall() { return tensorflow::errors::Cancelled("tfsched: the step of an all-reduce was cancelled."); }

// Finds the call that inputs `first` and the two behind it name, and its group; then goes on with `next(group, call)`.
void WithGroup(OpKernelContext* context, int first, AsyncOpKernel::DoneCallback done,
               std::function<void(std::shared_ptr<const CollectiveGroup>, CollectiveCall)> next) {
  int32_t size = 0, key = 0;
  CollectiveCall call;
  tensorflow::WorkerEnv* env = nullptr;
  OP_REQUIRES_OK_ASYNC(context, ElementOf(context, first, &size), done);
  OP_REQUIRES_OK_ASYNC(context, ElementOf(context, first + 1, &key), done);
  OP_REQUIRES_OK_ASYNC(context, ElementOf(context, first + 2, &call.instance), done);
  OP_REQUIRES_ASYNC(
      context, size >= 1,
      tensorflow::errors::InvalidArgument("tfsched: the collective group's size is ", size, "; give 1 or more."), done);
  OP_REQUIRES_OK_ASYNC(context, FindServer(*context->device(), &env), done);
  call.turn = TurnOf(*context);
  call.step = StepOf(context->collective_executor());
  CompleteGroup(env, context->device()->attributes(), key, size, context->cancellation_manager(),
                [context, done, call, next = std::move(next)](const absl::Status& status,
                                                              std::shared_ptr<const CollectiveGroup> group) {
                  OP_REQUIRES_OK_ASYNC(context, status, done);
                  CollectiveCall of_group = call;
                  of_group.group = group->step_id;
                  next(std::move(group), std::move(of_group));
                });
}

class AgreeKernel : public AsyncOpKernel {
 public:
  explicit AgreeKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("plan", &plan_));
    OP_REQUIRES(context, plan_ != Statements::kStock,
                tensorflow::errors::InvalidArgument("tfsched: the plan of ", name(), " is empty."));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ProcessStepTimes().Notice(CountedStep(context->step_id()), ProcessDispatcher().NowUs());
    Tensor* agreed = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, tensorflow::TensorShape(), &agreed), done);
    const auto finish = [](OpKernelContext* context, bool agreed) {
      context->mutable_output(0)->scalar<bool>()() = agreed;
      return absl::OkStatus();
    };
    const auto cancel = [](const std::shared_ptr<AgreeWaiter>& waiter) {
      if (waiter->Claim()) waiter->Call(OutcomeOf(CancelledCall()), false);
    };
    WithGroup(
        context, 0, done,
        [context, done, finish, cancel, plan = plan_](std::shared_ptr<const CollectiveGroup> group, CollectiveCall call) {
          Await<bool>(
              context, done, finish,
              [&](const std::shared_ptr<AgreeWaiter>& waiter) {
                EndWithGroup(*group, waiter, [weak = std::weak_ptr<AgreeWaiter>(waiter)](const absl::Status& why) {
                  const auto waiter = weak.lock();
                  if (waiter != nullptr && waiter->Claim()) waiter->Call(OutcomeOf(why), false);
                });
                Agree(group, std::move(call), plan, waiter);
              },
              cancel);
        });
  }

 private:
  std::string plan_;
};

absl::Status TypeOf(tensorflow::DataType dtype, ElementType* type) {
  switch (dtype) {
    case tensorflow::DT_HALF:
      *type = ElementType::kFloat16;
      return absl::OkStatus();
    case tensorflow::DT_BFLOAT16:
      *type = ElementType::kBfloat16;
      return absl::OkStatus();
    case tensorflow::DT_FLOAT:
      *type = ElementType::kFloat32;
      return absl::OkStatus();
    case tensorflow::DT_DOUBLE:
      *type = ElementType::kFloat64;
      return absl::OkStatus();
    case tensorflow::DT_INT32:
      *type = ElementType::kInt32;
      return absl::OkStatus();
    case tensorflow::DT_INT64:
      *type = ElementType::kInt64;
      return absl::OkStatus();
    default:
      return tensorflow::errors::InvalidArgument("tfsched: tensors of type ", tensorflow::DataTypeString(dtype),
                                                 " cannot be all-reduced.");
  }
}

class AllReduceKernel : public AsyncOpKernel {
 public:
  explicit AllReduceKernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    std::string reduction;
    tensorflow::DataType dtype;
    OP_REQUIRES_OK(context, context->GetAttr("T", &dtype));
    OP_REQUIRES_OK(context, TypeOf(dtype, &spec_.type));
    OP_REQUIRES_OK(context, context->GetAttr("reduction", &reduction));
    spec_.reduction = reduction == "Max"   ? Reduction::kMax
                      : reduction == "Min" ? Reduction::kMin
                      : reduction == "Mul" ? Reduction::kMul
                                           : Reduction::kAdd;
    OP_REQUIRES_OK(context, context->GetAttr("mean", &spec_.mean));
    OP_REQUIRES_OK(context, context->GetAttr("element", &element_));
    OP_REQUIRES_OK(context, context->GetAttr("elements", &spec_.elements));
    OP_REQUIRES_OK(context, context->GetAttr("piece_bytes", &spec_.piece_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("whole_bytes", &whole_bytes_));
    OP_REQUIRES_OK(context, context->GetAttr("transfer", &tag_.name));
    OP_REQUIRES_OK(context, context->GetAttr("policy", &tag_.policy));
    OP_REQUIRES_OK(context, context->GetAttr("rank", &tag_.rank));
    OP_REQUIRES_OK(context, context->GetAttr("contribution_rank", &contribution_rank_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &tag_.count));
    OP_REQUIRES_OK(context, context->GetAttr("credit_bytes", &tag_.credit_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("follow_link", &follow_link_));
    OP_REQUIRES_OK(context, context->GetAttr("piece_elements", &spec_.piece_elements));
    OP_REQUIRES_OK(context, context->GetAttr("piece_ranks", &piece_ranks_));
    const std::vector<int64_t>& pieces = spec_.piece_elements;
    OP_REQUIRES(
        context,
        pieces.size() == piece_ranks_.size() &&
            (pieces.empty() || Layout::Fits(spec_.elements, SizeOf(spec_.type), pieces)) &&
            std::all_of(piece_ranks_.begin(), piece_ranks_.end(), [](int rank) { return rank >= 0; }),
        tensorflow::errors::InvalidArgument("tfsched: ", name(), " has ", spec_.elements, " elements, and its ",
                                            pieces.size(), " pieces and ", piece_ranks_.size(),
                                            " ranks do not fit them; give pieces that begin at multiples of 64 bytes "
                                            "and add up to the tensor, each with a rank."));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    if (context->num_inputs() > kAgreed) {
      bool agreed = false;
      OP_REQUIRES_OK_ASYNC(context, ElementOf(context, kAgreed, &agreed), done);
      if (!agreed) {
        context->set_output(0, context->input(0));
        done();
        return;
      }
    }
    const int64_t elements = context->input(0).NumElements();
    OP_REQUIRES_ASYNC(context, elements == spec_.elements,
                      tensorflow::errors::InvalidArgument("tfsched: ", tag_.name, " has ", elements, " elements, and ",
                                                          spec_.elements, " were agreed on; give it a fixed shape."),
                      done);
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, context->input(0).shape(), &output), done);
    AllReduceRequest request;
    request.element = element_;
    request.spec = spec_;
    request.whole_bytes = whole_bytes_;
    request.follow_link = follow_link_;
    request.tag = tag_;
    request.contribution_rank = contribution_rank_;
    request.piece_ranks = piece_ranks_;
    request.input = context->input(0);
    request.output = *output;
    WithGroup(context, 1, done,
              [context, done, request = std::move(request)](std::shared_ptr<const CollectiveGroup> group,
                                                            CollectiveCall call) mutable {
                request.group = group;
                request.call = std::move(call);
                // Others wait for what this member will not send now.
                const auto cancel = [group](const std::shared_ptr<AllReduceWaiter>& waiter) {
                  if (!waiter->Claim()) return;
                  BreakGroup(*group, CancelledCall());
                  waiter->Call(OutcomeOf(CancelledCall()));
                };
                Await<>(
                    context, done, NoOutput,
                    [&](const std::shared_ptr<AllReduceWaiter>& waiter) {
                      EndWithGroup(*group, waiter, [weak = std::weak_ptr<AllReduceWaiter>(waiter)](const absl::Status& why) {
                        const auto waiter = weak.lock();
                        if (waiter == nullptr || !waiter->Claim()) return;
                        CountAllReduce(false);
                        waiter->Call(OutcomeOf(why));
                      });
                      AllReduce(std::move(request), waiter);
                    },
                    cancel);
              });
  }

 private:
  static constexpr int kAgreed = 4;  // of the inputs, where the op has it

  ExchangeSpec spec_;
  int64_t whole_bytes_ = 0;
  bool follow_link_ = false;
  int64_t element_ = 0;
  TransferInfo tag_;
  int contribution_rank_ = 0;
  std::vector<int> piece_ranks_;
};

REGISTER_KERNEL_BUILDER(Name("TfschedAgree").Device(tensorflow::DEVICE_CPU), AgreeKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedAllReduce").Device(tensorflow::DEVICE_CPU), AllReduceKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedAllReduceIfAgreed").Device(tensorflow::DEVICE_CPU), AllReduceKernel);

}  // namespace
}  // namespace tfsched
