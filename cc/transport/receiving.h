// Where tensors of other tasks enter the process: the rendezvous that asks for them.
#ifndef TFSCHED_CC_TRANSPORT_RECEIVING_H_
#define TFSCHED_CC_TRANSPORT_RECEIVING_H_

#include <cstdint>

#include "tensorflow/core/distributed_runtime/base_rendezvous_mgr.h"

namespace tfsched {

// One step's. It asks as the stock one does, by RecvTensor of the worker that has the tensor; but chunks whose places are
// known are written there while gRPC's message is decoded, and what tfsched's ops have sent is marked with its key.
tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous> NewReceivingRendezvous(const tensorflow::WorkerEnv* env,
                                                                                int64_t step_id);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_RECEIVING_H_
