// tictac: TicTac's counter (section 5.1, "Enforcing"), with a byte credit and a rule for transfers that never come.
//
// The paper's rule: per step and receiving worker a counter; a transfer of rank r is handed to gRPC when r transfers have
// been. Two additions:
//
// * Credit. What is handed over together, HTTP/2 interleaves, and interleaved transfers all arrive late. So the next one
//   is handed over only while fewer than `credit_bytes` are on the wire. A transfer larger than the credit still goes, once
//   the wire has room for its first byte.
//
// * Missing ranks. A lower rank may never come: its sender was pruned, the step was aborted, a branch not taken. Nothing
//   may wait for it for ever, and no long time-out should be paid. The rule: a transfer waits for a missing rank only
//     (a) while something of its group is on the wire. That costs nothing, for the wire is busy, and it ends, because gRPC
//         releases every response, sent or failed; and
//     (b) for `grace_us` after the group's last event (an arrival or a release) when the wire is idle. The scheduler says
//         how long that is for this step (patience.h).
//   After that the policy steps aside: for the rest of this step a missing rank is not waited for any more; what is there
//   still goes in rank order, under the credit. So a step loses at most one grace period per receiver, however many ranks
//   are missing.
//
//   A group that begins in the middle of its step, because the policy was changed, cannot know which ranks have gone and
//   never waits for one.
//
//   Why (b) ends: with an idle wire the only events left are arrivals, and a group has at most `count` of them.
#include <algorithm>
#include <map>
#include <tuple>

#include "cc/core/policy.h"

namespace tfsched {
namespace {

class TicTacPolicy : public Policy {
 public:
  explicit TicTacPolicy(const PolicyOptions& options)
      : options_(options), credit_bytes_(options.credit_bytes), waits_(!options.midway) {}

  void Add(const CommTask& task, int64_t now_us) override {
    queue_.emplace(PlaceOf(task), task.bytes);
    last_event_us_ = now_us;
  }

  uint64_t Next(int64_t now_us) override {
    wake_at_us_ = kNever;
    if (queue_.empty()) return 0;
    if (credit_bytes_ > 0 && on_wire_ > 0 && on_wire_bytes_ >= credit_bytes_) return 0;
    auto first = queue_.begin();
    if (waits_ && std::get<0>(first->first) > handed_) {  // a lower rank is missing
      if (on_wire_ > 0) return 0;
      if (now_us < last_event_us_ + options_.grace_us) {
        wake_at_us_ = last_event_us_ + options_.grace_us;
        return 0;
      }
      waits_ = false;
      ++step_asides_;
    }
    const uint64_t id = std::get<2>(first->first);
    on_wire_bytes_ += first->second;
    ++on_wire_;
    ++handed_;
    queue_.erase(first);
    return id;
  }

  void Finished(const CommTask& task, int64_t now_us) override {
    on_wire_bytes_ -= task.bytes;
    --on_wire_;
    last_event_us_ = now_us;
  }

  void Remove(const CommTask& task, int64_t now_us) override { queue_.erase(PlaceOf(task)); }

  void Adopt(const CommTask& task, int64_t now_us) override {
    on_wire_bytes_ += task.bytes;
    ++on_wire_;
    ++handed_;
    last_event_us_ = now_us;
  }

  void SetCreditBytes(int64_t credit_bytes) override { credit_bytes_ = credit_bytes; }

  int64_t WakeAtUs() const override { return wake_at_us_; }
  bool Complete() const override { return handed_ >= options_.count && queue_.empty(); }
  int64_t step_asides() const override { return step_asides_; }

 private:
  const PolicyOptions options_;
  int64_t credit_bytes_;
  std::map<QueuePlace, int64_t> queue_;  // -> bytes
  int handed_ = 0;                       // the paper's counter
  int on_wire_ = 0;
  int64_t on_wire_bytes_ = 0;
  int64_t last_event_us_ = 0;
  int64_t wake_at_us_ = kNever;
  bool waits_;  // for missing ranks
  int64_t step_asides_ = 0;
};

PolicyRegistrar tictac_registrar("tictac", PolicySpan::kStep,
                                 [](const PolicyOptions& options) { return std::make_unique<TicTacPolicy>(options); });

}  // namespace
}  // namespace tfsched
