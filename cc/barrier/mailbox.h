// Where a step leaves what its background call takes: gradients and other values that the background function does not
// compute itself.
#ifndef TFSCHED_CC_BARRIER_MAILBOX_H_
#define TFSCHED_CC_BARRIER_MAILBOX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/barrier/ended_tokens.h"
#include "cc/barrier/outcome.h"
#include "cc/barrier/waiter.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// One box per token, that is per execution of the background function, and task: one process may run several tasks of a
// cluster, whose parts of a step end each for itself. The step opens, fills and closes it; the background function takes
// from it, and may come before the step does. Thread safe; waiters are called without locks held. A box goes away when the
// step is over and all its slots were taken, and at the latest when the background function is over.
class Mailbox {
 public:
  using Token = int64_t;
  using Address = std::pair<Token, std::string>;  // token, task
  using Value = std::shared_ptr<void>;
  using Taker = Waiter<const Outcome&, Value>;

  enum class Put { kStored, kOver, kTwice };

  struct Counters {
    int64_t boxes = 0;
    int64_t values = 0;   // put and not yet taken
    int64_t waiting = 0;  // takers
  };

  // The step will put `slots` values (more, if it has opened the box before). Throws away the client's older boxes that are
  // closed: their background function is over.
  void Open(const Address& address, const std::string& client, int64_t slots);

  // kOver: the background function has ended, the value is dropped. kTwice: the key was put before.
  Put PutValue(const Address& address, const std::string& key, Value value);

  // Calls `taker` with the value, now or when it is put; with a derived error if it will never be.
  void Take(const Address& address, const std::string& key, std::shared_ptr<Taker> taker);

  // Gives up a Take, unless its taker has been claimed already.
  void CancelTake(const Address& address, const std::string& key, const std::shared_ptr<Taker>& taker);

  // The step is over: what it has not put will never come.
  void Close(const Address& address);

  // The background function is over, or must end: takers are aborted, its boxes go, and so will everything that still comes
  // for the token.
  void EndCall(Token token);

  Counters counters() const;

 private:
  struct Box {
    std::string client;
    int64_t slots = 0;
    int64_t taken = 0;
    bool closed = false;
    std::map<std::string, Value> values;
    std::map<std::string, std::shared_ptr<Taker>> takers;
  };
  using Boxes = std::map<Address, Box>;
  // Runs after the lock is released: calls, and the freeing of values.
  using Later = std::vector<std::function<void()>>;

  static void AbortTakers(Box* box, const Outcome& outcome, Later* later);
  void Discard(Boxes::iterator it, Later* later) TFSCHED_REQUIRES(mu_);
  static void Run(Later* later);

  mutable Mutex mu_;
  Boxes boxes_ TFSCHED_GUARDED_BY(mu_);
  EndedTokens ended_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_MAILBOX_H_
