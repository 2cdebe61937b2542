// TfschedUpdate, TfschedFirstError, TfschedVerdict, the kernels.
#include <string>
#include <vector>

#include "cc/ops/barrier/inner_update.h"
#include "cc/ops/barrier/inputs.h"
#include "cc/ops/barrier/part_update.h"
#include "cc/ops/barrier/update_claim.h"
#include "cc/transport/barrier.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class UpdateKernel : public ClaimingKernel {
 public:
  explicit UpdateKernel(OpKernelConstruction* context) : ClaimingKernel(context) {
    std::string node;
    OP_REQUIRES_OK(context, context->GetAttr("node", &node));
    tensorflow::DataTypeVector types;
    OP_REQUIRES_OK(context, context->GetAttr("Targs", &types));
    OP_REQUIRES_OK(context, update_.Make(context, node, types));
  }

  absl::Status Update(OpKernelContext* context, UpdateClaim* claim) override {
    TF_RETURN_IF_ERROR(CheckHandles(context, update_.inputs()));
    TF_RETURN_IF_ERROR(CheckElements(context, update_.inputs(), num_inputs()));
    const std::string earlier = FirstError(context, update_.inputs(), num_inputs());
    if (!earlier.empty()) return SetErrorText(context, earlier);
    if (!claim->mine()) return SetErrorText(context, TextOf(claim->status(), name()));
    std::vector<Tensor*> inputs;
    for (int i = 0; i < update_.inputs(); ++i) inputs.push_back(const_cast<Tensor*>(&context->input(i)));
    LetGoOfVariables(context, update_.inputs());
    const absl::Status status = update_.Run(context, inputs);
    if (status.ok()) claim->Made();
    return SetErrorText(context, TextOf(status, name()));
  }

 private:
  InnerUpdate update_;
};

class FirstErrorKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, CheckElements(context, 0, num_inputs()));
    OP_REQUIRES_OK(context, SetErrorText(context, FirstError(context, 0, num_inputs())));
  }
};

class VerdictKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    int64_t token = 0;
    OP_REQUIRES_OK(context, TokenOf(context, 0, &token));
    OP_REQUIRES_OK(context, CheckElements(context, 1, num_inputs()));
    OP_REQUIRES_OK(context, StatusOfText(FirstError(context, 1, num_inputs())));
    ProcessCalls().Applied(token);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfschedUpdate").Device(tensorflow::DEVICE_CPU), UpdateKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedFirstError").Device(tensorflow::DEVICE_CPU), FirstErrorKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedVerdict").Device(tensorflow::DEVICE_CPU), VerdictKernel);

}  // namespace
}  // namespace tfsched
