// Where a worker keeps the values that were sent ahead of its next step.
#ifndef TFSCHED_CC_BARRIER_RECEIVED_AHEAD_H_
#define TFSCHED_CC_BARRIER_RECEIVED_AHEAD_H_

#include <cstdint>
#include <deque>
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

// A value is kept for as long as some graph of the client may ask for it. Thread safe; takers are called without locks held.
class ReceivedAhead {
 public:
  using Key = std::pair<std::string, std::string>;  // client, key
  using Value = std::shared_ptr<const void>;
  using Taker = Waiter<const Outcome&, Value>;  // the value if the outcome is OK

  void AddReader(const Key& key);
  void RemoveReader(const Key& key);
  // Keeps the value and the one before it, which may still be asked for: by another session's step, or because two
  // background functions deliver at the same time. Drops it if nobody may ask.
  void Put(const Key& key, int64_t token, Value value);
  // Calls `taker` with the value that `token` has sent: now, or when it arrives. False if the value will not come, for its
  // background function is over; the taker then stays the caller's.
  bool Take(const Key& key, int64_t token, const std::shared_ptr<Taker>& taker);
  // Forgets a taker that was given up.
  void CancelTake(const Key& key, const std::shared_ptr<Taker>& taker);
  // Who waits for a value that will not come.
  struct Lost {
    std::string client;
    std::shared_ptr<Taker> taker;
  };
  // The background function of this token is over in this process; those that wait for a value of it wait in vain, and are
  // forgotten.
  std::vector<Lost> EndToken(int64_t token);

  struct Counters {
    int64_t values = 0;
    int64_t waiting = 0;
  };
  Counters counters() const;

 private:
  struct Waiting {
    int64_t token;
    std::shared_ptr<Taker> taker;
  };
  struct Entry {
    int readers = 0;
    std::deque<std::pair<int64_t, Value>> values;  // token and value, the last to arrive at the end
    std::vector<Waiting> waiting;
  };
  mutable Mutex mu_;
  std::map<Key, Entry> entries_ TFSCHED_GUARDED_BY(mu_);
  int64_t waiting_ TFSCHED_GUARDED_BY(mu_) = 0;
  EndedTokens ended_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_RECEIVED_AHEAD_H_
