// The ops that make an update chunk by chunk (docs/barrier.md). tfsched's pass writes them into the background function.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("TfschedUpdatePiece")
    .Input("inputs: Targs")
    .Input("token: int64")
    .Attr("Targs: list(type)")
    .Attr("T: type")
    .Attr("node: string")
    .Attr("gradient: int >= 0")
    .Attr("shape: shape")
    .Attr("piece: int >= 0")
    .Attr("pieces: int >= 2")
    .Attr("sizes: list(int) = []")
    .Attr("update: string")
    .Attr("R: int >= 1")
    .Attr("keys: list(string)")
    .Attr("transfers: list(string)")
    .Attr("receivers: list(string)")
    .Attr("ranks: list(int)")
    .Attr("counts: list(int)")
    .Attr("policy: string")
    .Attr("credit_bytes: int")
    .Output("values: R * T")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
Makes one chunk of an update, for TfschedUpdateFromPieces to publish, and sends its new values ahead.

inputs: of the update op, with one chunk of the gradient instead of the whole.
token: of the f.
node: the update op, a serialized NodeDef.
gradient: which of the inputs is the gradient.
shape: of the variable.
piece: the chunk's number, of `pieces`.
update: the name that all chunks of the update share.
keys: the senders' names for the R readers of the variable, as in TfschedReadAhead.
sizes: bytes of all chunks; nothing if they are even.
transfers: names of the transfers to the readers; their chunks are numbered as TfschedSplit does.
ranks: of this chunk's transfers.
values: for each reader the chunk, tagged; where sending ahead is not worth it, a marker and then nothing.
)doc");

REGISTER_OP("TfschedUpdateFromPieces")
    .Input("inputs: Targs")
    .Input("token: int64")
    .Input("after: N * string")
    .Attr("Targs: list(type)")
    .Attr("N: int >= 0 = 0")
    .Attr("node: string")
    .Attr("gradient: int >= 0")
    .Attr("shape: shape")
    .Attr("pieces: int >= 2")
    .Attr("update: string")
    .Attr("client: string")
    .Attr("keys: list(string)")
    .Output("error: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Gives the variables the values that the chunks have made, all at once, or runs the update as a whole where that cannot be.

It cannot be if somebody else has written to a variable since the first chunk, if a chunk failed, or if the variable or the gradient
have not the shape that was expected. The result, and the error, are always those of the update itself.

inputs: of the update op, without the gradient.
after, error: as in TfschedUpdate.
)doc");
