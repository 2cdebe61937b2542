// How the tensors of a group lie in the one tensor as which they are sent.
#ifndef TFSCHED_CC_OPS_TRANSFERS_GROUPED_H_
#define TFSCHED_CC_OPS_TRANSFERS_GROUPED_H_

#include <cstdint>

#include "cc/ops/transfers/chunks.h"

namespace tfsched {

// A header of 64-bit numbers: for each tensor its rank and its dimensions. Behind it the tensors' bytes. The header and each
// tensor fill up whole blocks, so that every tensor begins at an aligned address and no kernel needs a copy of it.
// grouped_bytes() in tfsched/grappler/sending/grouping.py computes the same size; a test compares both.
inline int64_t InWholeBlocks(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_TRANSFERS_GROUPED_H_
