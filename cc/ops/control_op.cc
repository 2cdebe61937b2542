// The control ops: read a task's scheduler from anywhere in the cluster, by placing the op on that task.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedStats")
    .Output("json: string")
    .SetIsStateful()  // never folded, never shared between runs
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
The counters of the scheduler in the process that runs this op, as a JSON object.
)doc");

REGISTER_OP("TfschedTrace")
    .Attr("clear: bool = false")
    .Output("json: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
The last transfers of the process that runs this op, as a JSON list, oldest first.

clear: forget them after reading.
)doc");
