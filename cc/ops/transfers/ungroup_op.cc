// TfschedUngroup, the op: takes a group of transfers apart at their receiver.
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"

REGISTER_OP("TfschedUngroup")
    .Input("joined: uint8")
    .Output("outputs: T")
    .Attr("T: list(type) >= 1")
    .Attr("shapes: list(shape) >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) -> absl::Status {
      std::vector<tensorflow::TensorShapeProto> shapes;
      TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
      for (int output = 0; output < context->num_outputs(); ++output) {
        tensorflow::shape_inference::ShapeHandle handle = context->UnknownShape();
        if (output < static_cast<int>(shapes.size())) {
          tensorflow::PartialTensorShape shape;
          TF_RETURN_IF_ERROR(tensorflow::PartialTensorShape::BuildPartialTensorShape(shapes[output], &shape));
          TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shape, &handle));
        }
        context->set_output(output, handle);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
The inputs of a TfschedGroup. They share the received tensor's memory, no bytes are moved.

shapes: of the outputs as the graph states them. What arrives has the shapes that the sender's tensors had.
)doc");
