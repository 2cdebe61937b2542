// What workers exchange with servers, or around a ring: pulls, pushes, all-reduces by the formula, and all updates.
#include <algorithm>

#include "cc/simulator/engine.h"

namespace tfsched::simulator {

void Engine::Send(Kind kind, int32_t worker, int32_t piece, int32_t step, int32_t event) {
  Transfer transfer;
  transfer.kind = kind;
  transfer.worker = worker;
  transfer.piece = piece;
  transfer.step = step;
  transfer.ready_event = event;
  traffic_.Submit(transfer, now_us_);
}

void Engine::GradientsMade(int32_t worker, int32_t piece, int32_t event) {
  const Worker& one = workers_[static_cast<size_t>(worker)];
  const double at_us = one.origin_us + model_.piece_hold_us[static_cast<size_t>(piece)];
  if (at_us > now_us_) {
    After(at_us, Timed{What::kHeld, worker, piece, one.step, event, now_us_});
  } else {
    Push(worker, piece, one.step, event);
  }
}

void Engine::Push(int32_t worker, int32_t piece, int32_t step, int32_t event) {
  if (model_.exchanges()) {
    BeginExchange(worker, piece, step, event);
    return;
  }
  if (!model_.ring()) {
    Send(Kind::kPush, worker, piece, step, event);
    return;
  }
  // An all-reduce begins when the slowest worker's gradient is there.
  int32_t& left = copies_left_[static_cast<size_t>(step) * model_.piece_bytes.size() + static_cast<size_t>(piece)];
  if (--left == 0) Send(Kind::kAllReduce, kNone, piece, step, event);
}

void Engine::Arrived(int32_t number) {
  const Transfer transfer = traffic_.at(number);
  const bool message = transfer.kind == Kind::kMessage;
  const int32_t who = message ? traffic_.ConnectionOf(transfer) : transfer.worker;
  Event event{transfer.kind, transfer.piece, who, transfer.step, transfer.ready_event};
  event.busy_event = transfer.start_us > transfer.ready_us ? transfer.busy_event : kNone;
  event.ready_us = transfer.ready_us;
  event.start_us = transfer.start_us;
  event.end_us = now_us_;
  const int32_t logged = Log(event);
  traffic_.Free(number, logged);
  Count(transfer);
  const double delay_us = static_cast<double>(transfer.bytes) * model_.processing_us_per_byte;
  if (message && delay_us > 0) {
    processing_[next_processing_] = transfer;
    Timed timed{What::kMessageProcessed, transfer.worker, next_processing_++, transfer.step, logged, now_us_};
    After(now_us_ + delay_us, timed);
  } else if (message) {
    MessageProcessed(transfer, logged);
  } else if (delay_us > 0) {
    Timed timed{What::kProcessed, transfer.worker, transfer.piece, transfer.step, logged, now_us_, transfer.kind};
    After(now_us_ + delay_us, timed);
  } else {
    Processed(transfer.kind, transfer.worker, transfer.piece, transfer.step, logged);
  }
}

void Engine::Count(const Transfer& transfer) {
  ++result_->messages;
  if (transfer.kind == Kind::kPull) result_->pulled_bytes += transfer.bytes;
  // An exchange counts once, when it is over.
  if (transfer.kind == Kind::kPush || transfer.kind == Kind::kAllReduce) result_->pushed_bytes += transfer.bytes;
  const double within_us = InWindow(transfer.start_us, now_us_);
  if (model_.ring()) {
    result_->ring_busy_us += within_us;
    return;
  }
  const double share = now_us_ > transfer.start_us ? within_us / (now_us_ - transfer.start_us) : 0;
  const auto [from, to] = traffic_.HostsOf(transfer);
  if (from == to) return;  // never on a link
  result_->sent_bytes[from] += share * static_cast<double>(transfer.bytes);
  result_->received_bytes[to] += share * static_cast<double>(transfer.bytes);
}

void Engine::Processed(Kind kind, int32_t worker, int32_t piece, int32_t step, int32_t event) {
  if (kind == Kind::kPull) {
    Here(worker, piece, event);
    return;
  }
  if (kind == Kind::kPush) {
    double& finish_us = result_->finish_us[static_cast<size_t>(step) * workers_.size() + static_cast<size_t>(worker)];
    finish_us = std::max(finish_us, now_us_);
    if (model_.synchronous) {
      int32_t& left = copies_left_[static_cast<size_t>(step) * model_.piece_bytes.size() + static_cast<size_t>(piece)];
      if (--left > 0) return;
    }
  }
  AllCopiesHere(kind == Kind::kPush ? LaneOf(worker, step) : step, step, piece, event);
}

// The worker has a piece of the newest values.
void Engine::Here(int32_t worker, int32_t piece, int32_t event) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  for (const int32_t tensor : model_.piece_tensors[piece]) {
    const int64_t arrivals = ++one.arrivals[static_cast<size_t>(tensor)];
    const int64_t needed = (one.step + int64_t{1}) * arrival_count_[static_cast<size_t>(tensor)];
    if (arrivals != needed || !one.computing) continue;  // else BeginOps will see it
    for (const int32_t op : tensor_readers_[tensor]) Satisfied(worker, op, -2 - tensor, event);
  }
}

void Engine::AllCopiesHere(int32_t lane, int32_t step, int32_t piece, int32_t event) {
  if (model_.update_pieces) {
    const int32_t group = model_.piece_group[static_cast<size_t>(piece)];
    if (group == kNone) {
      Update(lane, step, piece, model_.piece_bytes[static_cast<size_t>(piece)], event);
      return;
    }
    int32_t& left = group_left_[static_cast<size_t>(lane) * static_cast<size_t>(group_pieces_.rows()) + group];
    if (--left > 0) return;
    left = group_push_count_[static_cast<size_t>(group)];
    // One after the other: which is pulled first is for the ranks to say.
    int64_t bytes = 0;
    for (const int32_t one : group_pieces_[group]) {
      if (pushed_[static_cast<size_t>(one)] != 0) bytes += model_.piece_bytes[static_cast<size_t>(one)];
    }
    for (const int32_t one : group_pieces_[group]) {
      const auto i = static_cast<size_t>(one);
      if (pushed_[i] != 0 || follows_[i] != 0) Update(lane, step, one, bytes, event);
    }
    return;
  }
  for (const int32_t tensor : model_.piece_tensors[piece]) {
    const auto i = static_cast<size_t>(tensor);
    int32_t& left = pieces_left_[static_cast<size_t>(lane) * model_.tensor_bytes.size() + i];
    if (--left > 0) continue;
    left = tensor_push_count_[i];
    Update(lane, step, tensor, model_.tensor_bytes[i], event);
  }
}

void Engine::Update(int32_t lane, int32_t step, int32_t what, int64_t bytes, int32_t event) {
  const double delay_us = static_cast<double>(bytes) * model_.update_us_per_byte;
  if (delay_us > 0) {
    After(now_us_ + delay_us, Timed{What::kUpdated, lane, what, step, event, now_us_});
  } else {
    Updated(lane, step, what, event);
  }
}

void Engine::Updated(int32_t lane, int32_t step, int32_t what, int32_t event) {
  if (model_.update_pieces) {
    PieceUpdated(lane, step, what, event);
    return;
  }
  for (const int32_t piece : tensor_pieces_[what]) {
    const auto i = static_cast<size_t>(piece);
    if (pushed_[i] == 0 && follows_[i] == 0) continue;
    int32_t& left = tensors_left_[static_cast<size_t>(lane) * model_.piece_bytes.size() + i];
    if (--left > 0) continue;
    left = piece_tensor_count_[i];
    PieceUpdated(lane, step, piece, event);
  }
}

void Engine::PieceUpdated(int32_t lane, int32_t step, int32_t piece, int32_t event) {
  const int32_t first = model_.one_update() ? 0 : lane;
  const int32_t last = model_.one_update() ? model_.workers : lane + 1;
  const auto i = static_cast<size_t>(piece);
  // Across the barrier the new value is on its way at once, before the next step asks for it.
  const bool ahead = !model_.all_reduces() && !model_.barrier && step + 1 < model_.steps && model_.piece_pulled[i] != 0 &&
                     pull_waits_[i] == 0;
  for (int32_t worker = first; worker < last; ++worker) {
    if (model_.all_reduces()) Here(worker, piece, event);
    if (ahead) Send(Kind::kPull, worker, piece, step + 1, event);
  }
  if (model_.barrier && pushed_[i] != 0) {
    --updates_left_[static_cast<size_t>(lane)];
    MaybeEndStep(lane, step, event);
  }
}

int32_t Engine::Log(Event event) {
  if (event.step < model_.recorded_from) return kNone;
  result_->events.push_back(event);
  return static_cast<int32_t>(result_->events.size()) - 1;
}

double Engine::InWindow(double start_us, double end_us) const {
  return std::max(0.0, std::min(end_us, result_->window_end_us) - std::max(start_us, result_->window_begin_us));
}

std::vector<int32_t> CriticalPath(const std::vector<Event>& events, int32_t last, double begin_us) {
  std::vector<int32_t> path;
  // What an event waited for was logged before it, so this ends.
  for (int32_t at = last; at != kNone;) {
    const Event& event = events[static_cast<size_t>(at)];
    if (event.end_us <= begin_us && !path.empty()) break;
    path.push_back(at);
    if (event.start_us <= begin_us) break;
    at = event.busy_event != kNone ? event.busy_event : event.ready_event;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace tfsched::simulator
