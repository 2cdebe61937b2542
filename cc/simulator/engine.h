// The simulation of training steps on a cluster: workers that compute, servers that update, and the traffic between them.
#ifndef TFSCHED_CC_SIMULATOR_ENGINE_H_
#define TFSCHED_CC_SIMULATOR_ENGINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "cc/simulator/links.h"
#include "cc/simulator/model.h"
#include "cc/simulator/traffic.h"

namespace tfsched::simulator {

// Runs `model.steps` steps of every worker; docs/simulator.md describes what a step is. Deterministic. Not thread safe.
// RunJobs (jobs.h) has the clock: it calls Settle, then Advance, FlowEnded and Arrive at the next moment, and so on.
//
//   Begin(w, s) ─► ops, as their inputs and tensors come ─► pushes, as gradients are made ─► updates, as pushes arrive
//        ▲            ▲ pulls: asked for at Begin, or (barrier crossed) sent as soon as updated       │
//        └────────────┴───────────────────────────────────────────────────────────────────────────────┘
class Engine {
 public:
  // The model has been checked. For `links` and `first_flow` see Traffic.
  Engine(const Model& model, Links* links, int32_t first_flow, Result* result);

  // Hands over, sends and computes what may go now; after all events of a moment.
  void Settle(double now_us);

  // When something happens next that is not the end of a flow.
  double NextUs() const { return std::min(timed_.empty() ? kNeverUs : timed_.top().at_us, traffic_.NextUs()); }

  // Goes to `now_us`, which must be after no NextUs() of engines and links.
  void Advance(double now_us);
  void FlowEnded(int32_t flow);
  void Arrive();

  // Nothing is left to happen. False if something waits for what never comes.
  bool Finish();

 private:
  enum class What : int32_t { kBegin, kOps, kComputed, kHeld, kProcessed, kUpdated, kMessageProcessed };
  struct Timed {
    What what;
    int32_t worker;  // of kUpdated: the lane
    int32_t index;   // op; piece; tensor or piece; of a message its number in processing_
    int32_t step;
    int32_t event;
    double since_us;
    Kind kind = Kind::kCompute;
    double at_us = 0;
    uint64_t number = 0;
    bool operator>(const Timed& other) const {
      return at_us > other.at_us || (at_us == other.at_us && number > other.number);
    }
  };
  struct Worker {
    int32_t step = -1;
    bool computing = false;  // the step's overhead is over
    int32_t ops_left = 0;
    int32_t idle = 0;  // streams
    double idle_since_us = 0;
    double origin_us = 0;  // when `origin_op` of its step started
    int32_t last_op_event = kNone;
    int32_t begin_event = kNone;
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<int32_t>> ready;
    std::vector<int32_t> op_waits;    // per op: inputs and tensors that are missing
    std::vector<int32_t> op_cause;    // per op: what it waited for last: an op, or -2 - tensor; kNone: the step's begin
    std::vector<int32_t> op_why;      // per op: the event of that
    std::vector<double> op_ready_us;  // per op
    std::vector<int32_t> push_waits;  // per piece
    std::vector<int32_t> pull_waits;
    std::vector<int64_t> arrivals;  // per tensor: pieces, over all steps
    bool dirty = false;
  };

  bool Follows(int32_t piece) const;

  // A worker's step.
  void Begin(int32_t worker, int32_t step, int32_t event);
  void BeginOps(int32_t worker);
  void AskFor(int32_t worker, const std::vector<int32_t>& pieces);
  void Satisfied(int32_t worker, int32_t op, int32_t cause, int32_t event);
  void Compute(int32_t worker);
  void Computed(int32_t worker, int32_t op, double start_us, int32_t event);
  void StepComputed(int32_t worker, int32_t event);
  void MaybeEndStep(int32_t lane, int32_t step, int32_t event);

  // One worker's part of the exchange of one piece.
  struct Part {
    std::unique_ptr<Algorithm> algorithm;  // null until it has its own gradient
    size_t left = 0;                       // messages to arrive
    int64_t pieces = 0;                    // of the algorithm
    int64_t first_turn = 0;
    std::vector<Transfer> held;  // messages to it, which it has not asked for yet
  };
  using Parts = std::vector<Part>;  // of all workers

  // All-reduces by messages, in all_reduce.cc.
  void BeginExchange(int32_t worker, int32_t piece, int32_t step, int32_t event);
  void SendMessages(const std::vector<Message>& messages, int32_t worker, int32_t piece, int32_t step, int32_t event);
  void MessageProcessed(const Transfer& transfer, int32_t event);
  void Exchanged(int32_t worker, int32_t piece, int32_t step, int32_t event);

  // Transfers and updates.
  void Send(Kind kind, int32_t worker, int32_t piece, int32_t step, int32_t event);
  void GradientsMade(int32_t worker, int32_t piece, int32_t event);
  void Push(int32_t worker, int32_t piece, int32_t step, int32_t event);
  void Arrived(int32_t transfer);
  void Processed(Kind kind, int32_t worker, int32_t piece, int32_t step, int32_t event);
  void Here(int32_t worker, int32_t piece, int32_t event);
  void AllCopiesHere(int32_t lane, int32_t step, int32_t piece, int32_t event);
  void Update(int32_t lane, int32_t step, int32_t what, int64_t bytes, int32_t event);
  void Updated(int32_t lane, int32_t step, int32_t what, int32_t event);
  void PieceUpdated(int32_t lane, int32_t step, int32_t piece, int32_t event);

  void Touch(int32_t worker);
  void After(double at_us, Timed timed);
  void Handle(const Timed& timed);
  void Count(const Transfer& transfer);
  int32_t Log(Event event);
  double InWindow(double start_us, double end_us) const;
  int32_t LaneOf(int32_t worker, int32_t step) const { return model_.one_update() ? step : worker; }

  const Model& model_;
  Result* const result_;
  Traffic traffic_;
  double now_us_ = 0;
  Table op_consumers_;                 // op -> ops
  Table tensor_readers_;               // tensor -> ops
  Table op_pushes_;                    // op -> pieces
  Table op_pulls_;                     // op -> pieces
  Table tensor_pieces_;                // tensor -> pieces
  Table group_pieces_;                 // group -> pieces
  std::vector<uint8_t> pushed_;        // per piece
  std::vector<uint8_t> follows_;       // per piece: only pulled, when what is only pushed has been updated
  std::vector<int32_t> asked_always_;  // pieces that are asked for when a step begins, also if the barrier is crossed
  std::vector<int32_t> asked_first_;   // those that follow their update if it is
  std::vector<int32_t> piece_tensor_count_, push_waits_, pull_waits_;
  std::vector<int32_t> group_push_count_, tensor_push_count_;  // pieces that are pushed
  std::vector<int32_t> arrival_count_;                         // per tensor: pieces that a worker gets in a step
  int32_t pushed_pieces_ = 0;
  std::vector<Worker> workers_;
  // Per lane, [lane * n + i]: a lane is a step where all workers' updates are one, else a worker.
  std::vector<int32_t> copies_left_;   // per piece: workers whose copy has not arrived
  std::vector<int32_t> group_left_;    // per group: pieces that have not arrived from all workers
  std::vector<int32_t> pieces_left_;   // per tensor: pieces that have not arrived from all workers
  std::vector<int32_t> tensors_left_;  // per piece: tensors that are not updated
  std::vector<int32_t> updates_left_;  // pieces
  std::vector<int32_t> workers_left_;  // workers that compute
  std::vector<int32_t> order_, place_, dirty_workers_, arrived_;
  int32_t to_begin_ = 0;                                    // workers that have not begun the first measured step
  int32_t to_end_ = 0;                                      // workers that are not through
  int32_t last_event_ = kNone;                              // after which the last of them was
  double last_begin_us_ = 0;                                // when that one had begun its last step
  std::map<std::pair<int32_t, int32_t>, Parts> exchanges_;  // by step and piece, while they are under way
  int64_t exchanges_begun_ = 0;
  std::map<int32_t, Transfer> processing_;  // messages that have arrived and are not processed yet
  int32_t next_processing_ = 0;
  std::priority_queue<Timed, std::vector<Timed>, std::greater<Timed>> timed_;
  uint64_t next_number_ = 0;
};

// The critical path of the last step: from the event after which the last worker was through, back over what each waited
// for, to the beginning of that step.
std::vector<int32_t> CriticalPath(const std::vector<Event>& events, int32_t last, double begin_us);

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_ENGINE_H_
