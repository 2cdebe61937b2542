// A virtual clock and a link on it: the production scheduler, run in no time. For tests and simulators.
#ifndef TFSCHED_CC_CORE_VIRTUAL_LINK_H_
#define TFSCHED_CC_CORE_VIRTUAL_LINK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/core/scheduler.h"

namespace tfsched {

// Events in order of time, those of one moment in the order in which they were asked for. Not thread safe.
class VirtualClock {
 public:
  int64_t now_us() const { return now_us_; }

  void At(int64_t when_us, std::function<void()> event) { Put(when_us, /*late=*/false, std::move(event)); }

  // After all other events of this moment, including those that are still to be asked for.
  void AtEndOfMoment(std::function<void()> event) { Put(now_us_, /*late=*/true, std::move(event)); }

  // Until nothing is left to happen. False if that is not so after `max_events`.
  bool Run(int64_t max_events = 1000000) {
    for (; !events_.empty() && max_events > 0; --max_events) {
      const auto first = events_.begin();
      now_us_ = std::get<0>(first->first);
      const std::function<void()> event = std::move(first->second);
      events_.erase(first);
      event();
    }
    return events_.empty();
  }

 private:
  void Put(int64_t when_us, bool late, std::function<void()> event) {
    events_.emplace(std::make_tuple(std::max(when_us, now_us_), late, next_++), std::move(event));
  }

  int64_t now_us_ = 0;
  uint64_t next_ = 0;
  std::map<std::tuple<int64_t, bool, uint64_t>, std::function<void()>> events_;
};

// One sender's uplink behind a scheduler of its own. What the scheduler starts is sent in that order, one after the other,
// each for `overhead_us` and its bytes' time at `bandwidth_bps`; then it is delivered and its credit returned.
class VirtualLink {
 public:
  VirtualLink(VirtualClock* clock, const SchedulerOptions& options, double bandwidth_bps, int64_t overhead_us)
      : clock_(clock), scheduler_(options), bandwidth_bps_(bandwidth_bps), overhead_us_(overhead_us) {}

  VirtualLink(const VirtualLink&) = delete;
  VirtualLink& operator=(const VirtualLink&) = delete;

  // `delivered(dropped)` is called once: when the last byte has arrived, or when the task's step has ended before its start.
  void Submit(CommTask task, std::function<void(bool dropped)> delivered) {
    task.requested_us = task.ready_us = clock_->now_us();
    delivered_[scheduler_.Submit(std::move(task), clock_->now_us())] = std::move(delivered);
    PollSoon();
  }

  void EndStep(int64_t step_id) {
    scheduler_.EndStep(step_id, clock_->now_us());
    PollSoon();
  }

  bool Configure(const OverridesChange& change) {
    const bool known = scheduler_.Configure(change, clock_->now_us());
    PollSoon();
    return known;
  }

  const Scheduler& scheduler() const { return scheduler_; }

 private:
  // What happens at the same time is seen together, so that no result hangs on the order of simultaneous events.
  void PollSoon() {
    if (poll_pending_) return;
    poll_pending_ = true;
    clock_->AtEndOfMoment([this] {
      poll_pending_ = false;
      Poll();
    });
  }

  void Poll() {
    std::vector<Start> starts;
    const int64_t wake_us = scheduler_.Poll(clock_->now_us(), &starts);
    for (Start& start : starts) {
      if (start.dropped) {
        Deliver(start.task.id, true);
      } else {
        Send(start.task);
      }
    }
    if (wake_us == kNever || wake_us == wake_us_) return;
    wake_us_ = wake_us;
    clock_->At(wake_us, [this] { PollSoon(); });
  }

  void Send(const CommTask& task) {
    const double begin_us = std::max(free_at_us_, static_cast<double>(clock_->now_us()));
    free_at_us_ = begin_us + static_cast<double>(overhead_us_) + static_cast<double>(task.bytes) * 8e6 / bandwidth_bps_;
    clock_->At(static_cast<int64_t>(std::llround(free_at_us_)), [this, id = task.id] {
      scheduler_.Finish(id, clock_->now_us());
      PollSoon();
      Deliver(id, false);
    });
  }

  void Deliver(uint64_t id, bool dropped) {
    const auto found = delivered_.find(id);
    const std::function<void(bool)> delivered = std::move(found->second);
    delivered_.erase(found);
    if (delivered) delivered(dropped);
  }

  VirtualClock* const clock_;
  Scheduler scheduler_;
  const double bandwidth_bps_;
  const int64_t overhead_us_;
  double free_at_us_ = 0;
  int64_t wake_us_ = kNever;
  bool poll_pending_ = false;
  std::map<uint64_t, std::function<void(bool)>> delivered_;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_VIRTUAL_LINK_H_
