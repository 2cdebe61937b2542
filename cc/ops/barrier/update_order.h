// What the background function's part on a parameter server is given: its token, its variables, and its number.
#ifndef TFSCHED_CC_OPS_BARRIER_UPDATE_ORDER_H_
#define TFSCHED_CC_OPS_BARRIER_UPDATE_ORDER_H_

#include <cstdint>

#include "cc/barrier/run_numbers.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfsched {

// int64[4]: the token, the list of handles (handle_table.h), the number (run_numbers.h).
tensorflow::Tensor OrderOf(int64_t token, int64_t id, const RunNumber& number);
absl::Status ReadOrder(const tensorflow::Tensor& order, int64_t* token, int64_t* id, RunNumber* number);

}  // namespace tfsched

#endif  // TFSCHED_CC_OPS_BARRIER_UPDATE_ORDER_H_
