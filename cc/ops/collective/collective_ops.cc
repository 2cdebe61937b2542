// TfschedAgree and the two all-reduces, the ops: what the graph rewrite puts beside a stock all-reduce.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tfsched {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ScalarShape;
using tensorflow::shape_inference::UnchangedShape;

REGISTER_OP("TfschedAgree")
    .Input("group_size: int32")
    .Input("group_key: int32")
    .Input("instance_key: int32")
    .Output("agreed: bool")
    .Attr("plan: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* context) { return ScalarShape(context); })
    .Doc(R"doc(
Whether all members of a collective group are about to exchange this all-reduce through tfsched, by the same plan.

Each member asks each other one, so all get the same answer, in each call anew. False where a member runs another build of
tfsched, none, or a graph without this op. Inserted by tfsched's Grappler pass; not meant to be written by hand.

group_size: members of the group; its key and the instance's are those of CollectiveReduceV2.
plan: words "key=value" that have to be the same on all members.
)doc");

REGISTER_OP("TfschedAllReduce")
    .Input("input: T")
    .Input("group_size: int32")
    .Input("group_key: int32")
    .Input("instance_key: int32")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32, int64}")
    .Attr("reduction: {'Add', 'Max', 'Min', 'Mul'}")
    .Attr("mean: bool")
    .Attr("element: int >= 0")
    .Attr("elements: int >= 0")
    .Attr("piece_bytes: int >= 1")
    .Attr("whole_bytes: int >= 0")
    .Attr("transfer: string")
    .Attr("policy: string")
    .Attr("rank: int >= 0")
    .Attr("contribution_rank: int >= 0")
    .Attr("count: int >= 1")
    .Attr("credit_bytes: int >= -1")
    .Attr("follow_link: bool")
    .Attr("piece_elements: list(int) = []")
    .Attr("piece_ranks: list(int) = []")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(UnchangedShape)
    .Doc(R"doc(
Combines one tensor of all members of a collective group, in their order, in an all-reduce that TfschedAgree has agreed on.

Its messages are queued by the sender's scheduler like other ordered transfers. Inserted by tfsched's Grappler pass; not
meant to be written by hand.

mean: divide by the number of members in the end.
element: which of the all-reduce's tensors it is, and `elements` how many elements it has.
piece_bytes: the tensor is exchanged in pieces of at most so many bytes.
whole_bytes: until the members have measured how fast their links are, a tensor of at most so many bytes goes whole to
  everybody.
transfer: its name in traces.
policy: the policy that decides when its messages leave.
rank: its place in the order in which the step's tensors are sent; smaller goes first.
contribution_rank: the same of members' own values, where a combined segment follows them as a message of its own.
count: how many tensors the step exchanges.
credit_bytes: bytes that may be handed to gRPC and not yet be written; 0 means no limit, -1 what two messages need
  that fit the link.
follow_link: make pieces larger where the members' links are fast.
piece_elements: elements of each piece; nothing if piece_bytes says how large they are.
piece_ranks: as rank, of the messages of each of these pieces.
)doc");

REGISTER_OP("TfschedAllReduceIfAgreed")
    .Input("input: T")
    .Input("group_size: int32")
    .Input("group_key: int32")
    .Input("instance_key: int32")
    .Input("agreed: bool")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32, int64}")
    .Attr("reduction: {'Add', 'Max', 'Min', 'Mul'}")
    .Attr("mean: bool")
    .Attr("element: int >= 0")
    .Attr("elements: int >= 0")
    .Attr("piece_bytes: int >= 1")
    .Attr("whole_bytes: int >= 0")
    .Attr("transfer: string")
    .Attr("policy: string")
    .Attr("rank: int >= 0")
    .Attr("contribution_rank: int >= 0")
    .Attr("count: int >= 1")
    .Attr("credit_bytes: int >= -1")
    .Attr("follow_link: bool")
    .Attr("piece_elements: list(int) = []")
    .Attr("piece_ranks: list(int) = []")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(UnchangedShape)
    .Doc(R"doc(
TfschedAllReduce if `agreed`; else gives back the input, which is the stock all-reduce's result then.

It stands where the one behind a step's end cannot know what the step has chosen. Inserted by tfsched's Grappler pass; not
meant to be written by hand.

agreed: from TfschedAgree. The other inputs and all attributes are TfschedAllReduce's.
)doc");

}  // namespace
}  // namespace tfsched
