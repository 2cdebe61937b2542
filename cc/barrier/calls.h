// The executions of the background function in their home: a client's updates one after the other, and every failure told.
#ifndef TFSCHED_CC_BARRIER_CALLS_H_
#define TFSCHED_CC_BARRIER_CALLS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/barrier/call_state.h"
#include "cc/barrier/outcome.h"
#include "cc/barrier/waiter.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// A step begins a call, launches the background function, and joins it; then the step is over and the function goes on. Who
// is told of its failure: the step itself if it has not joined yet; nobody if the step failed before it joined, for that is
// why the function failed; else the next who begins a call or drains. The next call does not begin before that is decided
// (call_state.h), or before all updates of this one are applied:
//
//     call k      begun ──► joined, applied ──► delivers values to the next step ──► done
//     call k+1                              └─► begun ...
//
// To launch a function takes long. The links would be idle meanwhile, if it began when the last value has been delivered. At
// most one call of a client delivers. Thread safe; waiters are called without locks held.
class Calls {
 public:
  using Token = int64_t;  // random and positive: several homes' tokens meet on a parameter server
  using Beginner = Waiter<const Outcome&, Token>;
  using Joiner = Waiter<const Outcome&>;
  using Drainer = Waiter<const Outcome&>;

  struct Counters {
    int64_t begun = 0;
    int64_t done = 0;    // of those, ended, in whatever way
    int64_t failed = 0;  // of those, with an error that was not the consequence of the step's own
    int64_t outstanding = 0;
    int64_t queued = 0;  // beginners and drainers that wait
    int64_t held = 0;    // tokens with state
    int64_t errors = 0;  // not yet told
  };

  explicit Calls(uint64_t seed) : random_(seed) {}

  // When the updates of the client's earlier calls are applied: `beginner` gets a new token, or the error of one that failed
  // (and 0).
  void Begin(const std::string& client, std::shared_ptr<Beginner> beginner);
  void CancelBegin(const std::string& client, const std::shared_ptr<Beginner>& beginner);

  // The function was never launched; the step itself says why.
  void Abandon(Token token);

  // Every parameter server has its expectations.
  void Ack(Token token);

  // Calls `joiner` at the Ack, or with the function's error if it ends before.
  void Join(Token token, std::shared_ptr<Joiner> joiner);
  void CancelJoin(Token token, const std::shared_ptr<Joiner>& joiner);

  // Whether the token's step has returned, or is about to: it has joined. Also of a call that is over, or of none: what is
  // outstanding of it ends by itself.
  bool HasReturned(Token token) const;

  // The client's last token whose step has joined it, unless its function has failed: nothing cancels that any more. 0 for
  // none.
  Token Committed(const std::string& client) const;
  // All updates of the function are applied. What is left of it is to deliver values.
  void Applied(Token token);

  // Whether the function of that token still runs. If not, somebody may have been told that it is over, and act on it.
  bool IsUnderWay(const std::string& client, Token token) const;

  // The error of the function if it has failed; whoever asks tells it.
  Outcome TakeError(Token token);

  // Whether a call of the client has failed and nobody has been told; and its error, as the next step is told it.
  bool HasError(const std::string& client) const;
  Outcome TakeErrorOf(const std::string& client);

  // The step's part in the home is over. True: it failed before it joined, so the function must be cancelled.
  bool EndStep(Token token);

  // The function is over.
  void Done(Token token, Outcome outcome);

  // When nothing of the client is outstanding: calls `drainer`, with the error of a call that failed. `returned`: nothing of
  // steps that have returned or failed by now, whatever a step that runs will leave behind.
  void Drain(const std::string& client, std::shared_ptr<Drainer> drainer, bool returned = false);
  void CancelDrain(const std::string& client, const std::shared_ptr<Drainer>& drainer, const Outcome& outcome);

  int64_t Outstanding(const std::string& client) const;

  // Blocks until no function runs, of any client, for at most `timeout_us`; returns how many still do.
  int64_t WaitIdle(int64_t timeout_us);

  Counters counters() const;

 private:
  struct Call {
    std::string client;
    CallState state = CallState::kLaunched;
    bool applied = false;
    Outcome outcome;  // once it is done
    std::vector<std::shared_ptr<Joiner>> joiners;
  };
  struct Queued {
    std::shared_ptr<Beginner> beginner;  // either of the two
    std::shared_ptr<Drainer> drainer;
  };
  struct Client {
    Token current = 0;     // whose updates are not all applied, or whose step has not joined
    Token delivering = 0;  // whose are, and has; still runs
    Token committed = 0;
    Outcome error;  // not yet told; the first, if two calls that ran at the same time have failed
    std::deque<Queued> queue;
  };
  using Later = std::vector<std::function<void()>>;

  void Move(Token token, CallEvent event, Later* later) TFSCHED_REQUIRES(mu_);
  void LetNextBegin(const std::string& name, Later* later) TFSCHED_REQUIRES(mu_);
  void Pump(const std::string& name, Later* later) TFSCHED_REQUIRES(mu_);
  void Remove(const std::string& name, const void* waiter, Later* later) TFSCHED_REQUIRES(mu_);
  static Outcome Told(const Outcome& outcome);

  mutable Mutex mu_;
  CondVar changed_;
  std::mt19937_64 random_ TFSCHED_GUARDED_BY(mu_);
  std::unordered_map<Token, Call> calls_ TFSCHED_GUARDED_BY(mu_);
  std::map<std::string, Client> clients_ TFSCHED_GUARDED_BY(mu_);
  int64_t begun_ TFSCHED_GUARDED_BY(mu_) = 0;
  int64_t done_ TFSCHED_GUARDED_BY(mu_) = 0;
  int64_t failed_ TFSCHED_GUARDED_BY(mu_) = 0;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_CALLS_H_
