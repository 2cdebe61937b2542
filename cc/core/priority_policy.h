// What the policies without a counter share: a priority queue over ranks, and the account of what is on the wire.
#ifndef TFSCHED_CC_CORE_PRIORITY_POLICY_H_
#define TFSCHED_CC_CORE_PRIORITY_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "cc/core/policy.h"

namespace tfsched {

// Of what is there, the lowest rank goes first and equal ranks by turn and arrival, over all steps. Nothing waits for a
// transfer that is not there, so ranks may be missing, come twice or belong to several graphs. When nothing is on the wire
// one task always starts, however large: with that, and because gRPC releases every task that it was given, no task waits
// for ever.
class PriorityPolicy : public Policy {
 public:
  explicit PriorityPolicy(const PolicyOptions& options) : credit_bytes_(options.credit_bytes) {}

  void Add(const CommTask& task, int64_t now_us) final {
    queue_.emplace(PlaceOf(task), task.bytes);
    Came(task, now_us);
  }

  uint64_t Next(int64_t now_us) final {
    held_ = false;
    if (queue_.empty()) return 0;
    const auto first = queue_.begin();
    // A task that may not start stays where it is: a smaller one behind it must not overtake it.
    if (on_wire_ > 0 && !Fits(first->second)) return 0;
    held_ = Holds(std::get<0>(first->first), first->second, now_us);
    if (held_) return 0;
    const uint64_t id = std::get<2>(first->first);
    Start(first->second);
    Left(id, now_us);
    queue_.erase(first);
    return id;
  }

  void Finished(const CommTask& task, int64_t now_us) final {
    on_wire_bytes_ -= task.bytes;
    --on_wire_;
    Released(task.id, now_us);
  }

  void Remove(const CommTask& task, int64_t now_us) final { queue_.erase(PlaceOf(task)); }
  void Adopt(const CommTask& task, int64_t now_us) final { Start(task.bytes); }
  void SetCreditBytes(int64_t credit_bytes) final { credit_bytes_ = credit_bytes; }
  bool Complete() const final { return queue_.empty(); }

 protected:
  // Whether a task of `bytes` may join what is on the wire; asked only while something is.
  virtual bool Fits(int64_t bytes) const = 0;

  // Whether a task of `rank` and `bytes`, which could start, waits for one that is not there. The policy says when to ask
  // again (WakeAtUs) and answers no at some time.
  virtual bool Holds(int rank, int64_t bytes, int64_t now_us) { return false; }
  bool held() const { return held_; }  // the last answer, if there was a question

  // For policies that look at times: a task was added, was returned by Next(), is on the wire no longer.
  virtual void Came(const CommTask& task, int64_t now_us) {}
  virtual void Left(uint64_t id, int64_t now_us) {}
  virtual void Released(uint64_t id, int64_t now_us) {}

  size_t queued() const { return queue_.size(); }
  int64_t on_wire() const { return on_wire_; }
  int64_t credit_bytes() const { return credit_bytes_; }
  int64_t on_wire_bytes() const { return on_wire_bytes_; }

 private:
  void Start(int64_t bytes) {
    on_wire_bytes_ += bytes;
    ++on_wire_;
  }

  std::map<QueuePlace, int64_t> queue_;  // -> bytes
  int64_t credit_bytes_;
  int64_t on_wire_bytes_ = 0;
  int64_t on_wire_ = 0;
  bool held_ = false;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_PRIORITY_POLICY_H_
