// The ops that cross the barrier between steps (docs/barrier.md). tfsched's pass writes them into training graphs.
#include "cc/ops/shape_attr.h"
#include "tensorflow/core/common_runtime/input_colocation_exemption_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfsched {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Input `index` is a token.
absl::Status CheckToken(InferenceContext* context, int index) {
  ShapeHandle unused;
  return context->WithRank(context->input(index), 0, &unused);
}

absl::Status TokenIn(InferenceContext* context) { return CheckToken(context, 0); }

absl::Status TokenInAndOut(InferenceContext* context) {
  context->set_output(0, context->Scalar());
  return CheckToken(context, 0);
}

absl::Status PutShape(InferenceContext* context) { return CheckToken(context, 1); }

absl::Status TakeShape(InferenceContext* context) {
  TF_RETURN_IF_ERROR(OutputHasShapeAttr(context));
  return CheckToken(context, 0);
}

}  // namespace
}  // namespace tfsched

// Ops that pass on an error of the background function are "distributed communication": of others TensorFlow turns
// Unavailable, which makes a MonitoredSession recover, into Internal, which does not.

REGISTER_OP("TfschedBackgroundCall")
    .Input("ids: N * int64")
    .Attr("N: int >= 0 = 0")
    .Attr("client: string")
    .Attr("f: func")
    .Output("token: int64")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Launches `f(token, orders...)` over the cluster and returns at once; f goes on after the step's end.

Waits until all updates of the client's previous call are applied, and fails with its error if it failed. If the step fails
before it passes TfschedJoin, the background function is cancelled.

ids: from TfschedHandles, of the parameter servers.
client: who trains. At most two calls of a client run at a time, of which the earlier one only delivers values.
f: a function of an int64 scalar and, for each of the ids, its order: an int64 vector of the token and the id. Its nodes name
  the tasks on which they run.
token: one execution of f, greater than 0.
)doc");

REGISTER_OP("TfschedOpen")
    .Input("token: int64")
    .Attr("client: string")
    .Attr("slots: int >= 0")
    .Output("opened: int64")
    .SetIsStateful()
    .SetShapeFn(tfsched::TokenInAndOut)
    .Doc(R"doc(
Opens the mailbox of `token` on this task. When the step ends here, in whatever way, what it has not put will never come.

slots: how many keys are put here.
opened: the token, once the box is open.
)doc");

REGISTER_OP("TfschedPut")
    .Input("x: T")
    .Input("token: int64")
    .Attr("T: type")
    .Attr("key: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tfsched::PutShape)
    .Doc(R"doc(
Puts a tensor into the mailbox; never waits. If f has failed, fails with its error where that is known.
)doc");

REGISTER_OP("TfschedTake")
    .Input("token: int64")
    .Attr("T: type")
    .Attr("key: string")
    .Attr("shape: shape = { unknown_rank: true }")
    .Output("x: T")
    .SetIsStateful()
    .SetShapeFn(tfsched::TakeShape)
    .Doc(R"doc(
Takes a tensor out of the mailbox, waiting for its TfschedPut on the same task.
)doc");

REGISTER_OP("TfschedExpect")
    .Input("token: int64")
    .Input("resources: N * resource")
    .Attr("N: int >= 0")
    .Attr("client: string")
    .Attr("shared: bool")
    .Output("expected: int64")
    .SetIsStateful()
    .SetShapeFn(tfsched::TokenInAndOut)
    .Doc(R"doc(
From now on these variables have an update outstanding, until its TfschedNotify or the end of the background
function on this device, in whatever way.

shared: readers of other clients wait for it, too, when its step has returned. If not, its client alone does.
)doc");

REGISTER_OP("TfschedNotify")
    .Input("token: int64")
    .Input("resource: resource")
    .SetIsStateful()
    .SetShapeFn(tfsched::TokenIn)
    .Doc(R"doc(
The update of the variable is applied.
)doc");

REGISTER_OP("TfschedAck")
    .Input("token: int64")
    .Input("expected: N * int64")
    .Attr("N: int >= 0")
    .SetIsStateful()
    .SetShapeFn(tfsched::TokenIn)
    .Doc(R"doc(
Every parameter server has its expectations: TfschedJoin may go on.

expected: from each server the token, when that is so.
)doc");

REGISTER_OP("TfschedJoin")
    .Input("token: int64")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tfsched::TokenIn)
    .Doc(R"doc(
Waits for the TfschedAck, or fails with the error of the background function. From here on that outlives the step.
)doc");

REGISTER_OP("TfschedWait")
    .Input("resources: N * resource")
    .Attr("N: int >= 0")
    .Attr("client: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Waits until no update of the variables is outstanding that was expected when it began. Fails only if its step is cancelled.

client: whose updates; also those of other clients of its program or with its home, if their steps have returned. "": of
  all clients, if their steps have returned.
)doc");

REGISTER_OP("TfschedDrain")
    .Attr("client: string")
    .Attr("timeout_ms: int >= 0 = 0")
    .Attr("returned: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Waits until nothing of the client is outstanding in this task; fails with the error of a call that failed.

timeout_ms: fails with DeadlineExceeded after this time; 0: waits as long as its step.
returned: does not wait for a step that still runs, nor for what that leaves behind.
)doc");

namespace tensorflow {

// Tokens are no reason to sit on one device.
REGISTER_INPUT_COLOCATION_EXEMPTION("TfschedBackgroundCall");

}  // namespace tensorflow
