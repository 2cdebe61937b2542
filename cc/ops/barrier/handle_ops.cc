// The ops that tell the background function, a function of numbers, which variables it updates (docs/barrier.md).
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

REGISTER_OP("TfschedHandles")
    .Input("resources: N * resource")
    .Attr("N: int >= 1")
    .Output("id: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Leaves handles in this process for a TfschedVariables.

id: of this very list of handles; the same in every step that has it.
)doc");

REGISTER_OP("TfschedVariables")
    .Input("order: int64")
    .Attr("N: int >= 1")
    .Output("token: int64")
    .Output("resources: N * resource")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
The handles that a TfschedHandles has left in this process; fails if it has not.

order: a token, the list's id, and f's number (cc/ops/barrier/update_order.h).
token: the order's.
)doc");
