// The background function's orders; see update_order.h.
#include "cc/ops/barrier/update_order.h"

#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

constexpr int64_t kNumbers = 4;

}  // namespace

tensorflow::Tensor OrderOf(int64_t token, int64_t id, const RunNumber& number) {
  tensorflow::Tensor order(tensorflow::DT_INT64, tensorflow::TensorShape({kNumbers}));
  auto numbers = order.vec<int64_t>();
  numbers(0) = token;
  numbers(1) = id;
  numbers(2) = number.epoch;
  numbers(3) = number.index;
  return order;
}

absl::Status ReadOrder(const tensorflow::Tensor& order, int64_t* token, int64_t* id, RunNumber* number) {
  if (order.dims() != 1 || order.NumElements() != kNumbers) {
    return tensorflow::errors::InvalidArgument("tfsched: an order has shape ", order.shape().DebugString(), ", not [",
                                               kNumbers, "].");
  }
  const auto numbers = order.vec<int64_t>();
  if (numbers(0) <= 0) {
    return tensorflow::errors::InvalidArgument("tfsched: an order has the token ", numbers(0),
                                               "; a token is greater than 0.");
  }
  *token = numbers(0);
  *id = numbers(1);
  *number = {numbers(2), numbers(3)};
  return absl::OkStatus();
}

}  // namespace tfsched
