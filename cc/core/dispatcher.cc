// The dispatcher's loop.
#include "cc/core/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tfsched {

Dispatcher::Dispatcher(Options options)
    : options_(std::move(options)),
      scheduler_(options_.scheduler),
      link_(options_.emulated_bps > 0 ? new EmulatedLink(options_.emulated_bps) : nullptr),
      thread_([this] { Loop(); }) {}

Dispatcher::~Dispatcher() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

int64_t Dispatcher::NowUs() {
  std::lock_guard<std::mutex> lock(clock_mu_);
  const int64_t now_us = options_.now_us();
  // A moment that a policy or a delivery waits for must not move away by an hour because the clock was corrected.
  if (now_us + set_back_us_ < last_now_us_) set_back_us_ = last_now_us_ - now_us;
  return last_now_us_ = now_us + set_back_us_;
}

void Dispatcher::Signal() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (signalled_) return;
    signalled_ = true;
  }
  changed_.notify_one();
}

uint64_t Dispatcher::Submit(CommTask task) {
  const uint64_t id = scheduler_.Submit(std::move(task), NowUs());
  Signal();
  return id;
}

void Dispatcher::Finish(uint64_t id) {
  scheduler_.Finish(id, NowUs());
  Signal();
}

void Dispatcher::EndStep(int64_t step_id) {
  scheduler_.EndStep(step_id, NowUs());
  Signal();
}

bool Dispatcher::Configure(const OverridesChange& change) {
  const bool known = scheduler_.Configure(change, NowUs());
  Signal();
  return known;
}

void Dispatcher::Deliver(int64_t now_us) {
  size_t delivered = 0;
  for (; delivered < deliveries_.size() && deliveries_[delivered].at_us <= now_us; ++delivered) {
    Start& start = deliveries_[delivered].start;
    const uint64_t id = start.task.id;
    start.task.start(id, false);
    scheduler_.Finish(id, now_us);
  }
  deliveries_.erase(deliveries_.begin(), deliveries_.begin() + static_cast<std::ptrdiff_t>(delivered));
}

void Dispatcher::Loop() {
  std::vector<Start> starts;
  while (true) {
    int64_t now_us = NowUs();
    Deliver(now_us);
    const int64_t wake_at_us = scheduler_.Poll(now_us, &starts);
    // What came since the clock was read starts later than that: its bytes cannot begin to pass before.
    if (link_ != nullptr && !starts.empty()) now_us = NowUs();
    for (Start& start : starts) {
      if (link_ != nullptr && !start.dropped) {
        const int64_t at_us = link_->DeliverAtUs(now_us, start.task.bytes);
        deliveries_.push_back(Delivery{at_us, std::move(start)});
      } else {
        start.task.start(start.task.id, start.dropped);
      }
    }
    starts.clear();
    int64_t until_us = wake_at_us;
    if (!deliveries_.empty()) until_us = std::min(until_us, deliveries_.front().at_us);
    std::unique_lock<std::mutex> lock(mu_);
    if (stopping_) break;
    const auto changed = [this] { return signalled_ || stopping_; };
    if (until_us == kNever) {
      changed_.wait(lock, changed);
    } else {
      now_us = NowUs();
      // Never longer than a second: the clock may be set forward meanwhile.
      const int64_t wait_us = std::min<int64_t>(std::max<int64_t>(until_us - now_us, 0), 1000000);
      changed_.wait_for(lock, std::chrono::microseconds(wait_us), changed);
    }
    signalled_ = false;
  }
  for (Delivery& delivery : deliveries_) delivery.start.task.start(delivery.start.task.id, true);
  scheduler_.DropAll(&starts);
  for (Start& start : starts) start.task.start(start.task.id, true);
}

}  // namespace tfsched
