// The ops that keep the failure of one background update to itself (docs/barrier.md). tfsched's pass writes them into the
// background function.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedUpdate")
    .Input("inputs: Targs")
    .Input("after: N * string")
    .Attr("Targs: list(type)")
    .Attr("N: int >= 0 = 0")
    .Attr("node: string")
    .Output("error: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Runs another op, one without outputs, and hands out its error instead of failing.

A failing op ends everything of its step on its task, and the step elsewhere: updates of other variables would be lost with
it, though the step that caused them has succeeded long ago.

after: errors of the updates whose results this one is made from. If one has failed this one is not run, and its error is theirs.
node: the other op, a serialized NodeDef of the inputs.
error: of the op, for TfschedVerdict; empty if it succeeded.
)doc");

REGISTER_OP("TfschedFirstError")
    .Input("errors: N * string")
    .Attr("N: int >= 1")
    .Output("error: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
The first of the errors that is not empty, so that one tensor leaves each parameter server.
)doc");

REGISTER_OP("TfschedVerdict")
    .Input("token: int64")
    .Input("errors: N * string")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Fails with the first of the errors that is not empty: when it has them all, no update can be lost by it any more. If all are
empty, all updates of the token's background function are applied: the client's next one may begin.
)doc");
