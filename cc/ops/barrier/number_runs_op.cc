// The op with which a coordinator agrees with a worker on the numbers of what the worker runs (docs/tensorflow2.md).
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedNumberRuns")
    .Input("numbers: int64")
    .Attr("client: string")
    .Output("numbered: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
The client's next background functions on this task are runs again of those with the numbers given, and then the first ones
of a new epoch.

numbers: int64[1 + 2 n]: the new epoch, random; the epochs and indices of n f's to run again.
client: who trains here.
numbered: the client's f's since the op was last run here.
)doc");
