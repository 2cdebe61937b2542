// TfschedMerge, the op: puts the chunks of a transfer together at its receiver.
#include "cc/ops/shape_attr.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedMerge")
    .Input("chunks: N * T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("N: int >= 1")
    .Attr("shape: shape")
    .Attr("sizes: list(int) = []")
    .SetShapeFn(tfsched::OutputHasShapeAttr)
    .Doc(R"doc(
The input of TfschedSplit from its chunks. The first step copies their bytes; from the second on they are received side by
side, and the whole is passed on without a copy. A first chunk that is followed by empty ones only is the whole tensor and is
passed on as it is.

shape: the tensor's shape, fully defined.
sizes: of the split, for who updates variables chunk by chunk; the merge itself takes chunks as they are.
)doc");
