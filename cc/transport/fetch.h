// Asks another task for one tensor, outside of steps: what collectives exchange.
#ifndef TFSCHED_CC_TRANSPORT_FETCH_H_
#define TFSCHED_CC_TRANSPORT_FETCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/distributed_runtime/worker_session.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/status.h"

namespace tfsched {

struct FetchRequest {
  std::shared_ptr<tensorflow::WorkerSession> session;  // whose workers are asked
  std::string task;                                    // who has the tensor
  int64_t step_id = 0;
  std::string key;                       // of the rendezvous
  tensorflow::Device* device = nullptr;  // where the tensor is to be
  // Where its bytes are to be written, if there are exactly so many: aligned to 64 bytes, and there until `done`.
  void* place = nullptr;
  int64_t place_bytes = 0;
};

// The tensor that `done` is given lies in the place, if that was of use. It may be kept unless it does.
using FetchDone = std::function<void(const absl::Status& status, const tensorflow::Tensor& value)>;

// `done` is called once, on any thread. There is no cancelling: a fetch ends with its answer, or with the connection.
void Fetch(const FetchRequest& request, FetchDone done);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_FETCH_H_
