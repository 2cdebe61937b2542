// TfschedUpdate, TfschedFirstError, TfschedVerdict, the kernels.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/tstring.h"

namespace tfsched {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorValue;
using tensorflow::tstring;

// "CODE MESSAGE"; empty for success.
std::string TextOf(const absl::Status& status, const std::string& node) {
  if (status.ok()) return "";
  return std::to_string(static_cast<int>(status.code())) + " " + std::string(status.message()) + "\n\t [[{{node " + node +
         "}}]]";
}

absl::Status StatusOfText(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  char* message = nullptr;
  const auto code = static_cast<absl::StatusCode>(std::strtol(text.c_str(), &message, 10));
  return absl::Status(code, message + 1);
}

void SetText(OpKernelContext* context, const std::string& text) {
  Tensor* output = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape(), &output));
  output->scalar<tstring>()() = text;
}

std::string FirstError(OpKernelContext* context, int first) {
  for (int i = first; i < context->num_inputs(); ++i) {
    const tstring& text = context->input(i).scalar<tstring>()();
    if (!text.empty()) return std::string(text);
  }
  return "";
}

class UpdateKernel : public OpKernel {
 public:
  explicit UpdateKernel(OpKernelConstruction* context) : OpKernel(context) {
    std::string text;
    OP_REQUIRES_OK(context, context->GetAttr("node", &text));
    tensorflow::NodeDef node;
    OP_REQUIRES(context, node.ParseFromString(text), tensorflow::errors::Internal("tfsched: attribute node is no NodeDef."));
    const tensorflow::OpDef* definition = nullptr;
    OP_REQUIRES_OK(context, tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &definition));
    tensorflow::AddDefaultsToNodeDef(*definition, &node);
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    OP_REQUIRES_OK(context,
                   tensorflow::NodeProperties::CreateFromNodeDef(node, tensorflow::OpRegistry::Global(), &properties));
    OpKernel* made = nullptr;
    OP_REQUIRES_OK(context,
                   tensorflow::CreateOpKernel(context->device_type(), context->device(),
                                              context->device()->GetAllocator(AllocatorAttributes()),
                                              context->function_library(), properties, context->graph_def_version(), &made));
    kernel_.reset(made);
    int after = 0;
    OP_REQUIRES_OK(context, context->GetAttr("N", &after));
    arguments_ = num_inputs() - after;
    OP_REQUIRES(context, made->AsAsync() == nullptr && made->num_outputs() == 0 && made->num_inputs() == arguments_,
                tensorflow::errors::Internal("tfsched: ", node.op(), " is no update of ", arguments_, " inputs."));
  }

  void Compute(OpKernelContext* context) override {
    const std::string earlier = FirstError(context, arguments_);
    if (!earlier.empty()) return SetText(context, earlier);
    const int count = arguments_;
    std::vector<TensorValue> inputs;
    std::vector<AllocatorAttributes> attributes;
    for (int i = 0; i < count; ++i) {
      // The very tensor: an assignment may keep the buffer of one that nobody else holds.
      inputs.emplace_back(const_cast<Tensor*>(&context->input(i)));
      attributes.push_back(context->input_alloc_attr(i));
    }
    OpKernelContext::Params params;
    params.step_id = context->step_id();
    params.op_kernel = kernel_.get();
    params.device = context->device();
    params.resource_manager = context->resource_manager();
    params.step_container = context->step_container();
    params.cancellation_manager = context->cancellation_manager();
    params.inputs = inputs;
    params.input_alloc_attrs = attributes;
    params.op_device_context = context->op_device_context();
    params.frame_iter = context->frame_iter();
    params.function_library = context->function_library();
    params.runner = context->runner();
    OpKernelContext inner(&params);
    kernel_->Compute(&inner);
    SetText(context, TextOf(inner.status(), name()));
  }

 private:
  std::unique_ptr<OpKernel> kernel_;
  int arguments_ = 0;
};

class FirstErrorKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override { SetText(context, FirstError(context, 0)); }
};

class VerdictKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override { OP_REQUIRES_OK(context, StatusOfText(FirstError(context, 0))); }
};

REGISTER_KERNEL_BUILDER(Name("TfschedUpdate").Device(tensorflow::DEVICE_CPU), UpdateKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedFirstError").Device(tensorflow::DEVICE_CPU), FirstErrorKernel);
REGISTER_KERNEL_BUILDER(Name("TfschedVerdict").Device(tensorflow::DEVICE_CPU), VerdictKernel);

}  // namespace
}  // namespace tfsched
