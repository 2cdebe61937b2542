// What members say about an all-reduce before its first byte moves, so that all of them decide alike how to do it.
#ifndef TFSCHED_CC_COLLECTIVE_STATEMENTS_H_
#define TFSCHED_CC_COLLECTIVE_STATEMENTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/barrier/outcome.h"
#include "cc/collective/choice.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// One all-reduce of one step of one group: the same for all members, and no other one's.
struct CollectiveCall {
  int64_t group = 0;
  int32_t instance = 0;
  std::string turn;  // of a loop
  // Of a session: its steps use the same instance keys. All members have the same number in the same step. 0 in functions.
  int64_t step = 0;
};

// The call but for its group, as a part of messages' names; and back again, as far as the text has it.
std::string NameOf(const CollectiveCall& call);
CollectiveCall CallNamed(const std::string& text);

// The statements of this process's members. Each member says of a call what it is about to do: its plan, as words
// "key=value", or that it leaves the call to stock TensorFlow. The first statement stands, whoever asks and whenever, so all
// who have asked everybody know the same and need nobody to decide. Thread safe; answers are given without locks held.
class Statements {
 public:
  // Called once, with what was said, kStock or a plan; or with why nothing will be.
  using Answer = std::function<void(const Outcome&, const std::string& said)>;
  static constexpr char kStock[] = "";

  // Returns what stands: `plan`, or what was said before.
  std::string Say(const std::string& member, const CollectiveCall& call, const std::string& plan);

  // Stock TensorFlow begins the all-reduce, in whichever turn; means nothing where plans have been stated.
  void SayStock(const std::string& member, int64_t group, int32_t instance, int64_t step = 0);

  // Asks what `member` says; waits until it does.
  void Ask(const std::string& member, const CollectiveCall& call, Answer answer);

  // Remembers, with the call, on what terms its members have agreed.
  void Settle(const std::string& member, const CollectiveCall& call, const Conditions& conditions);

  // Nothing if the call is not settled, or too long ago.
  std::optional<Conditions> Settled(const std::string& member, const CollectiveCall& call) const;

  // Whoever asks about the group, now or later, gets this answer.
  void Fail(const std::string& member, int64_t group, const Outcome& why);

  struct Counters {
    int64_t calls = 0;    // remembered
    int64_t waiting = 0;  // askers
  };
  Counters counters() const;

  // Of each member and group the newest calls are remembered. Whoever is further behind gets an error; but nobody can be, by
  // more calls than a step or two have. What is remembered keeps the heap between it from being one: about 20 KB a call.
  static constexpr size_t kRemembered = 1024;

 private:
  struct Turn {
    bool is_said = false;
    std::string said;
    std::vector<Answer> waiting;
    std::optional<Conditions> settled;
  };
  struct Instance {
    bool stock = false;
    std::map<std::string, Turn> turns;
  };
  // Step and instance key.
  using InstanceId = std::pair<int64_t, int32_t>;
  // One member's in one group.
  struct Board {
    Outcome failure;
    std::map<InstanceId, Instance> instances;
    std::deque<InstanceId> order;  // oldest first
  };
  using Later = std::vector<std::function<void()>>;

  Board& BoardOf(const std::string& member, int64_t group) TFSCHED_REQUIRES(mu_) { return boards_[{member, group}]; }
  static Instance& InstanceOf(Board* board, InstanceId id, Later* later);
  static void AnswerAll(Turn* turn, const Outcome& outcome, const std::string& said, Later* later);
  static void Run(const Later& later);

  mutable Mutex mu_;
  std::map<std::pair<std::string, int64_t>, Board> boards_ TFSCHED_GUARDED_BY(mu_);
};

// The words of a statement. Those whose keys begin with "~" are a member's own facts, and may differ from others'.
std::map<std::string, std::string> WordsOfStatement(const std::string& said);

// Why members who said this do not all do the same of their own: a sentence's part that names the first who differs, and
// how. "" if all have the same plan. `said` is (member, what it said) in the order of the members.
std::string Difference(const std::vector<std::pair<std::string, std::string>>& said);

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_STATEMENTS_H_
