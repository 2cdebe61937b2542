// TfschedGroup, the op: makes one tensor of a group of transfers at their sender.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedGroup")
    .Input("inputs: T")
    .Output("joined: uint8")
    .Attr("T: list(type) >= 1")
    .Attr("bytes: list(int) = []")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
Tensor fusion (MG-WFBP, Algorithm 1; PACE, Algorithm 1): several tensors as the bytes of one, for TfschedUngroup to take apart.

The result says which shapes the tensors have. Inserted by tfsched's Grappler pass; not meant to be written by hand.

bytes: of each input as the graph states it, for traces.
)doc");
