// Whether a step has returned: known in the task where its background function started, and asked there by readers.
#ifndef TFSCHED_CC_TRANSPORT_STEP_RETURNS_H_
#define TFSCHED_CC_TRANSPORT_STEP_RETURNS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tensorflow/core/distributed_runtime/worker_env.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/protobuf/worker.pb.h"

namespace tfsched {

using ReturnedAnswer = std::function<void(const absl::Status& status, bool returned)>;

// Asks the task `home` about the call of that token. `answer` is called once, on any thread, perhaps before this returns.
void AskWhetherReturned(const tensorflow::WorkerEnv* env, const std::string& home, int64_t token, ReturnedAnswer answer);

// For the home: if the request is such a question, fills in the answer and returns true.
bool AnswerWhetherReturned(const tensorflow::GetStepSequenceRequest& request, tensorflow::GetStepSequenceResponse* response);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_STEP_RETURNS_H_
