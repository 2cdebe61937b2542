// Messages on their way: the production schedulers of all sending tasks, connections, and the network below.
#ifndef TFSCHED_CC_SIMULATOR_TRAFFIC_H_
#define TFSCHED_CC_SIMULATOR_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "cc/collective/algorithm.h"
#include "cc/core/scheduler.h"
#include "cc/simulator/links.h"
#include "cc/simulator/model.h"

namespace tfsched::simulator {

// A piece, or a message of its exchange, that goes from one task to another.
struct Transfer {
  Kind kind = Kind::kPull;
  int32_t piece = 0;
  int32_t worker = 0;
  int32_t step = 0;
  int32_t ready_event = kNone;  // what made it ready
  int32_t busy_event = kNone;   // what its connection carried before it
  double ready_us = 0;
  double start_us = 0;
  uint64_t id = 0;    // the scheduler's
  int32_t next = -1;  // behind it on the connection
  int64_t bytes = 0;  // set by Traffic where it is a piece
  int64_t sent = 0;   // of them, in the windows before
  Message message;    // of kMessage, as its sender sees it
  int64_t turn = 0;   // of kMessage: CommTask::turn
};

// Each sending task has a scheduler of cc/core under the virtual clock: a piece that is ready is submitted, what the policy
// starts goes to its connection, and the end of a message is its release. A connection (sender, receiver) sends what was
// handed to it one after the other, or a window of each in turn; connections share the links of their hosts. Exchanging
// workers have a connection to each other; the ring of the formula is one sender with one connection to nobody. Steps never
// end before their transfers, so there is nothing for Scheduler::EndStep to drop.
class Traffic {
 public:
  // What connections send are flows of `links`, numbered from `first_flow` on; not of a ring, which uses none.
  Traffic(const Model& model, Links* links, int32_t first_flow);

  // Appends the hosts that each connection goes from and to.
  static void AddFlows(const Model& model, std::vector<int32_t>* from, std::vector<int32_t>* to);

  // notify_ready, at `now_us`.
  void Submit(Transfer transfer, double now_us);

  // Hands over and sends what may go now; after all events of a moment.
  void Settle(double now_us);

  // When something happens next that is not the end of a flow.
  double NextUs() const { return timed_.empty() ? kNeverUs : timed_.top().at_us; }

  // Goes to `now_us`, which must not be after NextUs(), and appends the transfers that have arrived by then. They stay valid
  // until they are freed.
  void Advance(double now_us, std::vector<int32_t>* arrived);

  // Of a connection's flow; appends what has arrived with it.
  void FlowEnded(int32_t connection, double now_us, std::vector<int32_t>* arrived) { Arrive(connection, now_us, arrived); }
  const Transfer& at(int32_t transfer) const { return transfers_[static_cast<size_t>(transfer)]; }
  // `event`: what the transfer was logged as, or kNone.
  void Free(int32_t transfer, int32_t event);

  int32_t ConnectionOf(const Transfer& transfer) const;

  // Hosts that it goes from and to. Not for a ring.
  std::pair<size_t, size_t> HostsOf(const Transfer& transfer) const;

  // In how many of the host's two directions a message is under way, start-up included; in a ring both if any is.
  int32_t BusyDirections(int32_t host) const;

 private:
  enum class What : int32_t { kStarted, kArrived, kReleased, kWake };
  struct Timed {
    double at_us;
    uint64_t number;
    What what;
    int32_t index;  // connection or scheduler
    uint64_t id;    // of kReleased
    bool operator>(const Timed& other) const {
      return at_us > other.at_us || (at_us == other.at_us && number > other.number);
    }
  };
  struct Connection {
    int32_t first = -1;  // being sent
    int32_t last = -1;
    bool busy = false;
    bool dirty = false;
    int32_t last_event = kNone;
  };
  struct Task {
    std::unique_ptr<Scheduler> scheduler;
    std::string name;
    bool dirty = false;
    double wake_us = -1;
  };

  int32_t SenderOf(const Transfer& transfer) const;
  void After(double at_us, What what, int32_t index, uint64_t id = 0);
  void HandOver(int32_t transfer);
  void Append(Connection* connection, int32_t transfer);
  int64_t InTurn(const Transfer& transfer) const;  // bytes of its next window
  void Begin(int32_t connection, double now_us);
  void Arrive(int32_t connection, double now_us, std::vector<int32_t>* arrived);
  void Touch(int32_t task);
  void Count(const Transfer& transfer, int32_t change);

  const Model& model_;
  std::vector<Task> tasks_;          // servers, if there are some, then workers; or the ring
  std::vector<int32_t> pull_count_;  // per server: pieces that one worker pulls in a step
  std::vector<Connection> connections_;
  Links* const links_;
  const int32_t first_flow_;
  std::vector<int32_t> sending_;    // per host: messages from it, but not within it
  std::vector<int32_t> receiving_;  // and to it
  std::vector<Transfer> transfers_;
  std::vector<int32_t> free_;
  std::vector<int32_t> dirty_tasks_;
  std::vector<int32_t> dirty_connections_;
  std::vector<Start> starts_;
  std::priority_queue<Timed, std::vector<Timed>, std::greater<Timed>> timed_;
  uint64_t next_number_ = 0;
};

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_TRAFFIC_H_
