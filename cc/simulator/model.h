// What is simulated: one cluster, the step that each of its workers repeats, and how tensors are cut into messages.
#ifndef TFSCHED_CC_SIMULATOR_MODEL_H_
#define TFSCHED_CC_SIMULATOR_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tfsched::simulator {

// A list of lists in two arrays: row i is values[offsets[i]] .. values[offsets[i + 1]].
struct Table {
  std::vector<int32_t> offsets = {0};
  std::vector<int32_t> values;

  struct Row {
    const int32_t* first;
    const int32_t* last;
    const int32_t* begin() const { return first; }
    const int32_t* end() const { return last; }
    int32_t size() const { return static_cast<int32_t>(last - first); }
  };
  Row operator[](int32_t row) const {
    const auto i = static_cast<size_t>(row);
    return Row{values.data() + offsets[i], values.data() + offsets[i + 1]};
  }
  int32_t rows() const { return static_cast<int32_t>(offsets.size()) - 1; }
  // Row j of the result holds every i whose row holds j; `rows` is how many j there are.
  Table Inverse(int32_t rows) const;
};

// Times in µs, sizes in bytes, bandwidths in bits per second. Nothing is checked here but what memory safety needs
// (Check()); sentences for users are the caller's.
struct Model {
  // The cluster.
  int32_t workers = 1;
  int32_t servers = 1;  // 0: workers all-reduce
  bool barrier = true;
  bool synchronous = true;
  bool update_pieces = false;  // a piece is updated and pulled as soon as all workers' copies of it are there
  bool shuffle = false;        // pulls of a step are asked for in random order, or in one of `request_orders`
  int32_t streams = 1;
  int32_t steps = 1;
  int32_t measured_from = 0;  // first step whose waits and loads count
  int32_t recorded_from = 0;  // first step whose events are kept
  uint64_t seed = 0;
  double startup_us = 0;  // of each message, on its connection
  double release_us = 0;  // from a message's last byte until its credit is back
  double step_overhead_us = 0;
  double update_us_per_byte = 0;
  double processing_us_per_byte = 0;
  // What an op's time is multiplied by if messages from and to its host are under way when it starts; by half as much more
  // than 1 if there are only some from it or only some to it.
  double contention = 1;
  std::vector<double> host_bps;       // of each host, in either direction
  std::vector<int32_t> worker_host;   // per worker
  std::vector<int32_t> server_host;   // per server
  std::vector<double> compute_scale;  // [step * workers + worker]: what op times are multiplied by

  // The step of one worker. Ops in the order in which a free stream prefers them.
  std::vector<double> op_us;
  Table op_inputs;       // op -> ops
  Table op_reads;        // op -> tensors that must be there
  Table pull_inputs;     // piece -> ops before which it is not asked for
  Table push_inputs;     // piece -> ops that make its gradients; empty: it is not pushed
  Table piece_tensors;   // piece -> tensors of which it carries a part
  Table request_orders;  // orders in which pieces may be asked for; each step and worker draws one of them

  std::vector<int64_t> tensor_bytes;
  std::vector<int64_t> piece_bytes;
  std::vector<int32_t> piece_server;
  // Pieces of one group are updated when all of them that are pushed are there; -1: in none. What is only pulled follows the
  // update: that of its group's pushes where pieces are updated, else that of its tensors.
  std::vector<int32_t> piece_group;
  std::vector<uint8_t> piece_pulled;
  std::vector<int32_t> pull_rank;  // 0.. among the pieces of a server; -1: not ordered
  std::vector<int32_t> push_rank;
  // What a planner holds back: a piece is pushed at the earliest so long after `origin_op` of its step has started.
  std::vector<double> piece_hold_us;
  int32_t origin_op = 0;

  // Of all-reduces. A piece of the step is one tensor that workers exchange, as cc/collective cuts it and by the way that it
  // chooses. Without a size a piece goes around a ring in the time that a formula says, with all links as one resource.
  int64_t exchange_piece_bytes = 0;
  int64_t whole_bytes = 0;  // see Choose(); used where `exchange_pace_bps` is 0
  int64_t exchange_pace_bps = 0;
  int32_t way = -1;  // a Way; -1: the one that Choose() says

  // The policy of cc/core.
  std::string pull_policy = "fifo";
  std::string push_policy = "fifo";
  int64_t credit_bytes = 0;
  int64_t grace_us = 5000;
  int64_t rate_bps = 0;  // what a sender hands over to one receiver; 0: no cap
  // A connection sends so much of a message, and goes on with the rest behind the messages that wait then; 0: all of it.
  int64_t window_bytes = 0;

  // Beside other jobs (jobs.h).
  int32_t priority = 0;  // of all that it sends, on links that it shares; smaller is sooner
  double start_us = 0;   // when its first step begins
  double window_begin_us = 0;
  double window_end_us = 0;  // with both given, loads count between them, and not from `measured_from` on

  bool all_reduces() const { return servers == 0; }
  bool exchanges() const { return all_reduces() && exchange_piece_bytes > 0; }
  bool has_window() const { return window_end_us > 0; }
  bool ring() const { return all_reduces() && !exchanges(); }
  // What steps have in common belongs to the step where all workers' updates are one, else each worker has its own.
  bool one_update() const { return synchronous && !exchanges(); }
  int32_t ops() const { return static_cast<int32_t>(op_us.size()); }
  int32_t tensors() const { return static_cast<int32_t>(tensor_bytes.size()); }
  int32_t pieces() const { return static_cast<int32_t>(piece_bytes.size()); }

  // "" or which of the arrays does not fit.
  std::string Check() const;
};

// kAllReduce is a whole one by the formula, kMessage one message of an exchange.
enum class Kind : int32_t { kCompute = 0, kPull = 1, kPush = 2, kAllReduce = 3, kUpdate = 4, kMessage = 5 };

constexpr int32_t kNone = -1;

// One stretch of time on one resource, and why it did not begin earlier.
struct Event {
  Kind kind = Kind::kCompute;
  int32_t what = 0;    // op, piece, or for updates tensor (piece where pieces are updated)
  int32_t worker = 0;  // kNone for what all workers share; of messages sender * workers + receiver
  int32_t step = 0;
  int32_t ready_event = kNone;  // what made it ready
  int32_t busy_event = kNone;   // what its resource did until it began
  double ready_us = 0;
  double start_us = 0;
  double end_us = 0;
};

struct Result {
  std::vector<double> begin_us;         // [step * workers + worker], one step more than were run
  std::vector<double> finish_us;        // when the worker had computed and its pushes had arrived
  std::vector<double> tensor_wait_us;   // sum over workers and measured steps of the time computation stood still for it
  std::vector<double> compute_busy_us;  // per worker, in the window
  std::vector<double> sent_bytes;       // per host, in the window
  std::vector<double> received_bytes;
  double ring_busy_us = 0;
  double window_begin_us = 0;  // when the last worker began the first measured step, or the model's
  double window_end_us = 0;    // when the last worker was through with all steps, or the model's
  double end_us = 0;           // when nothing was left to happen
  int64_t pulled_bytes = 0;    // delivered, over all steps
  int64_t pushed_bytes = 0;
  int64_t messages = 0;
  std::vector<Event> events;  // by start of being logged; of the recorded steps
  std::vector<int32_t> path;  // the critical path of the last step: events, first to last
};

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_MODEL_H_
