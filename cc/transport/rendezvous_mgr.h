// Where tensors leave the process and enter it: the rendezvous manager.
#ifndef TFSCHED_CC_TRANSPORT_RENDEZVOUS_MGR_H_
#define TFSCHED_CC_TRANSPORT_RENDEZVOUS_MGR_H_

#include "tensorflow/core/distributed_runtime/rpc/rpc_rendezvous_mgr.h"

namespace tfsched {

// The stock manager, with one step between "the tensor exists" and "the worker service encodes it for gRPC": the
// scheduler. Sitting here and not in the worker service leaves everything around it stock: request ids, the response cache,
// copies from an accelerator, cancellation. Only remote receivers call RecvLocalAsync, so local edges are never delayed.
class SchedulingRendezvousMgr : public tensorflow::RpcRendezvousMgr {
 public:
  explicit SchedulingRendezvousMgr(const tensorflow::WorkerEnv* env);

  void RecvLocalAsync(int64_t step_id, const tensorflow::Rendezvous::ParsedKey& parsed,
                      tensorflow::Rendezvous::DoneCallback done) override;

  // The master's news that a step is over, whether it succeeded or not.
  void Cleanup(int64_t step_id) override;

 protected:
  // The other direction: what this process asks other tasks for (receiving.h).
  tsl::core::RefCountPtr<tensorflow::BaseRemoteRendezvous> Create(int64_t step_id,
                                                                  const tensorflow::WorkerEnv* env) override;

 private:
  const tensorflow::WorkerEnv* const env_;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_RENDEZVOUS_MGR_H_
