// Whether a step has returned; see step_returns.h.
//
// The question travels as GetStepSequence, with two graph keys where stock TensorFlow sends one: an RPC that takes and gives
// numbers, needs no step, and that no data delays at the one who asks.
#include "cc/transport/step_returns.h"

#include <memory>
#include <utility>

#include "cc/transport/barrier.h"
#include "tensorflow/core/distributed_runtime/session_mgr.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/distributed_runtime/worker_session.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

// The first of the two keys; a token is the second.
constexpr int64_t kHasReturned = -0x7f5c4ed;

struct Question {
  std::shared_ptr<tensorflow::WorkerCacheInterface> cache;
  tensorflow::WorkerInterface* home = nullptr;
  std::string task;
  tensorflow::GetStepSequenceRequest request;
  tensorflow::GetStepSequenceResponse response;
};

}  // namespace

void AskWhetherReturned(const tensorflow::WorkerEnv* env, const std::string& home, int64_t token, ReturnedAnswer answer) {
  auto question = std::make_shared<Question>();
  question->cache = env->session_mgr->LegacySession()->GetSharedWorkerCache();
  question->task = home;
  question->home = question->cache->GetOrCreateWorker(home);
  if (question->home == nullptr) {
    answer(tensorflow::errors::NotFound("tfsched: no task is known as ", home, "."), false);
    return;
  }
  question->request.add_graph_key(kHasReturned);
  question->request.add_graph_key(token);
  question->home->GetStepSequenceAsync(
      &question->request, &question->response, [question, answer = std::move(answer)](const absl::Status& status) {
        question->cache->ReleaseWorker(question->task, question->home);
        const bool is_answer = status.ok() && question->response.step_sequence_size() == 1;
        if (!is_answer && status.ok()) {
          answer(tensorflow::errors::Internal("tfsched: ", question->task, " runs another build of tfsched."), false);
          return;
        }
        answer(status, is_answer && question->response.step_sequence(0).next_step_id() != 0);
      });
}

bool AnswerWhetherReturned(const tensorflow::GetStepSequenceRequest& request,
                           tensorflow::GetStepSequenceResponse* response) {
  if (request.graph_key_size() != 2 || request.graph_key(0) != kHasReturned) return false;
  auto* sequence = response->add_step_sequence();
  sequence->set_graph_key(request.graph_key(1));
  sequence->set_next_step_id(ProcessCalls().HasReturned(request.graph_key(1)) ? 1 : 0);
  return true;
}

}  // namespace tfsched
