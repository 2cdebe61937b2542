// TfschedSplit, the op: cuts a transfer into chunks at its sender.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedSplit")
    .Input("input: T")
    .Output("chunks: N * T")
    .Attr("T: type")
    .Attr("N: int >= 1")
    .Attr("shape: shape")
    .Attr("transfer: string")
    .Attr("receiver: string")
    .Attr("policy: string")
    .Attr("rank: int >= 0")
    .Attr("count: int >= 1")
    .Attr("credit_bytes: int >= 0")
    .Attr("copy: bool = false")
    .Attr("sizes: list(int) = []")
    .Attr("ranks: list(int) = []")
    // What TfschedMerge is not told by its own attribute it learns from the chunks themselves.
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
A Dependency Proxy with several outputs: partition() of ByteScheduler's CommTask (section 3.2).

Each chunk is a flat view of the input's buffer, no bytes are moved, and carries a tag of its own: chunk j has rank `rank` + j,
or `ranks`[j]. Chunks begin at multiples of 64 bytes, and their sizes differ by 64 bytes at most (the last may be shorter
still), or are `sizes`. An input of another shape than `shape`, or too small to be cut, leaves whole as the first chunk, with its own shape; the others are empty
then. Inserted by tfsched's Grappler pass together with TfschedMerge; not meant to be written by hand.

shape: the input's shape, fully defined.
transfer: the source tensor's name in the graph before the rewrite.
receiver: the task that the tensor is sent to, "/job:worker/replica:0/task:0".
policy: the policy that decides when a chunk starts.
rank: how many of the `count` ordered transfers and chunks from this task to `receiver` come before the first chunk.
credit_bytes: bytes that may be handed to gRPC and not yet be written; 0 means no limit.
sizes: bytes of each chunk; nothing if they are even.
ranks: of each chunk; nothing if they follow one another.
copy: send a snapshot, for sources that another op may write to in place (reference variables).
)doc");
