// Which updates a parameter server still has to see: a reader of a variable waits for those that were expected before.
#ifndef TFSCHED_CC_BARRIER_EXPECTATIONS_H_
#define TFSCHED_CC_BARRIER_EXPECTATIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/barrier/outcome.h"
#include "cc/barrier/waiter.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// A ticket is one expected update of one key by one background function (its token). A ticket ends when the update is
// applied, or with the background function; nothing else can end it, and nothing that has ended is kept.
//
// A ticket stands from the beginning of its step. The step may still compute, and may even wait for the one who reads, so
// nobody waits for another client's step before that has returned. Whether it has is known in its home alone: a reader that
// meets such a ticket asks there, and waits meanwhile. A step that returned before the reader began has joined its call by
// then, so the answer misses none.
//
// Thread safe; waiters are called without locks held.
class Expectations {
 public:
  using Token = int64_t;
  using Ticket = uint64_t;
  using WaitWaiter = Waiter<const Outcome&>;

  // Whose steps a reader sees.
  enum class Scope {
    kClose,  // its own, and those of clients of its program or with its home: sessions of one process, or of one master
    kAll,    // everybody's
  };
  struct Reader {
    std::string client;  // "program+name@home", or "" for a reader that does not train across the barrier
    Scope scope = Scope::kClose;
  };

  // A step of another client, of which the reader has to ask `home` whether it has returned.
  struct Doubt {
    Token token = 0;
    std::string home;  // a task
    bool operator<(const Doubt& other) const { return std::tie(token, home) < std::tie(other.token, other.home); }
  };

  struct Counters {
    int64_t tickets = 0;  // outstanding
    int64_t waiting = 0;  // waiters
    int64_t waits = 0;    // ever
    int64_t waits_blocked = 0;
  };

  // A ticket for each key. Other clients' readers wait for it only if it is `shared`.
  std::vector<Ticket> Expect(const std::string& client, const std::vector<std::string>& keys, Token token,
                             bool shared = true);

  // The token's update of the key is applied.
  void Complete(const std::string& key, Token token);

  // The answers of the home. The token's step has returned, so every reader in its scope has to see it;
  void Returned(Token token);
  // or it had not when this waiter began, which does not wait for it any more.
  void NotReturned(Token token, const std::string& key, const std::shared_ptr<WaitWaiter>& waiter);

  // Ends those of the tickets that are outstanding: the part of the background function that made them is over.
  void End(const std::vector<Ticket>& tickets);

  // Ends all of the token's tickets: the background function is over.
  void EndToken(Token token);

  // Whether no ticket of any key is outstanding; counts that as so many waits if it is so.
  bool Idle(int64_t waits);

  // Whether a Wait for each of the keys would be over at once; counts that as so many waits if it is so.
  bool Settled(const Reader& reader, const std::vector<std::string>& keys);

  // Calls `waiter` when no ticket of the key is left that is outstanding now and that the reader has to see: its own, and
  // those of others in its scope. Of what is given back the caller has to find out whether it has returned.
  std::vector<Doubt> Wait(const Reader& reader, const std::string& key, std::shared_ptr<WaitWaiter> waiter);

  // Gives up a Wait, unless its waiter has been claimed already.
  void CancelWait(const std::string& key, const std::shared_ptr<WaitWaiter>& waiter);

  Counters counters() const;

 private:
  struct Update {
    std::string client;
    Token token = 0;
    bool shared = true;
    bool returned = false;  // as far as anybody has asked
  };
  struct Waiting {
    std::set<Ticket> left;  // that it waits for
    std::shared_ptr<WaitWaiter> waiter;
  };
  struct Entry {
    std::map<Ticket, Update> tickets;
    std::vector<Waiting> waiting;
  };
  using Entries = std::map<std::string, Entry>;  // by key
  using Ready = std::vector<std::shared_ptr<WaitWaiter>>;

  static bool Holds(const Update& update, const Reader& reader);
  static void EndWaiting(Entry* entry, Ticket ticket, const WaitWaiter* only, Ready* ready);
  void EndLocked(Ticket ticket, Ready* ready) TFSCHED_REQUIRES(mu_);
  static void Call(const Ready& ready);

  mutable Mutex mu_;
  Ticket next_ TFSCHED_GUARDED_BY(mu_) = 1;
  Entries entries_ TFSCHED_GUARDED_BY(mu_);
  std::unordered_map<Ticket, Entries::iterator> by_ticket_ TFSCHED_GUARDED_BY(mu_);
  std::unordered_map<Token, std::set<Ticket>> by_token_ TFSCHED_GUARDED_BY(mu_);
  int64_t waits_ TFSCHED_GUARDED_BY(mu_) = 0;
  int64_t waits_blocked_ TFSCHED_GUARDED_BY(mu_) = 0;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_BARRIER_EXPECTATIONS_H_
