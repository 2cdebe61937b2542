// Workers and their steps; what they send is in exchange.cc.
#include "cc/simulator/engine.h"

#include <algorithm>
#include <utility>

#include "cc/simulator/random.h"

namespace tfsched::simulator {
namespace {

std::vector<int32_t> Counts(const Table& table) {
  std::vector<int32_t> counts;
  for (int32_t row = 0; row < table.rows(); ++row) counts.push_back(table[row].size());
  return counts;
}

// How many of each row are in `set`.
std::vector<int32_t> Counts(const Table& table, const std::vector<uint8_t>& set) {
  std::vector<int32_t> counts;
  for (int32_t row = 0; row < table.rows(); ++row) {
    counts.push_back(0);
    for (const int32_t value : table[row]) counts.back() += set[static_cast<size_t>(value)] != 0;
  }
  return counts;
}

std::vector<int32_t> Repeat(const std::vector<int32_t>& values, int32_t times) {
  std::vector<int32_t> result;
  result.reserve(values.size() * static_cast<size_t>(times));
  for (int32_t i = 0; i < times; ++i) result.insert(result.end(), values.begin(), values.end());
  return result;
}

// Row i: the pieces of group i.
Table Groups(const std::vector<int32_t>& group_of) {
  Table groups;
  for (const int32_t group : group_of) {
    groups.offsets.push_back(groups.offsets.back() + (group >= 0 ? 1 : 0));
    if (group >= 0) groups.values.push_back(group);
  }
  return groups.Inverse(static_cast<int32_t>(group_of.size()));
}

}  // namespace

Engine::Engine(const Model& model, Links* links, int32_t first_flow, Result* result)
    : model_(model),
      result_(result),
      traffic_(model, links, first_flow),
      op_consumers_(model.op_inputs.Inverse(model.ops())),
      tensor_readers_(model.op_reads.Inverse(model.tensors())),
      op_pushes_(model.push_inputs.Inverse(model.ops())),
      op_pulls_(model.pull_inputs.Inverse(model.ops())),
      tensor_pieces_(model.piece_tensors.Inverse(model.tensors())),
      group_pieces_(Groups(model.piece_group)),
      piece_tensor_count_(Counts(model.piece_tensors)),
      push_waits_(Counts(model.push_inputs)),
      pull_waits_(Counts(model.pull_inputs)),
      workers_(static_cast<size_t>(model.workers)) {
  for (const int32_t waits : push_waits_) pushed_.push_back(waits > 0);
  group_push_count_ = Counts(group_pieces_, pushed_);
  tensor_push_count_ = Counts(tensor_pieces_, pushed_);
  arrival_count_ = model.all_reduces() ? Counts(tensor_pieces_) : Counts(tensor_pieces_, model.piece_pulled);
  for (int32_t piece = 0; piece < model.pieces(); ++piece) {
    const auto i = static_cast<size_t>(piece);
    pushed_pieces_ += pushed_[i];
    follows_.push_back(Follows(piece));
    if (model.piece_pulled[i] == 0 || model.all_reduces() || pull_waits_[i] > 0) continue;
    ((pushed_[i] != 0 || follows_[i] != 0) && !model.barrier ? asked_first_ : asked_always_).push_back(piece);
  }
  place_.resize(model.piece_bytes.size());
  const int32_t lanes = model.one_update() ? model.steps : model.workers;
  copies_left_.assign(static_cast<size_t>(lanes) * model.piece_bytes.size(), model.one_update() ? model.workers : 1);
  group_left_ = Repeat(group_push_count_, lanes);
  pieces_left_ = Repeat(tensor_push_count_, lanes);
  tensors_left_ = Repeat(piece_tensor_count_, lanes);
  updates_left_.assign(static_cast<size_t>(lanes), pushed_pieces_);
  workers_left_.assign(static_cast<size_t>(lanes), model.one_update() ? model.workers : 1);
  for (Worker& worker : workers_) {
    worker.op_cause.resize(model.op_us.size());
    worker.op_why.resize(model.op_us.size());
    worker.op_ready_us.resize(model.op_us.size());
    // With all-reduce every worker has what the first step reads.
    worker.arrivals.assign(model.tensor_bytes.size(), 0);
    if (model.all_reduces()) worker.arrivals.assign(arrival_count_.begin(), arrival_count_.end());
  }
  const auto workers = static_cast<size_t>(model.workers);
  result->begin_us.assign((static_cast<size_t>(model.steps) + 1) * workers, 0);
  result->finish_us.assign(static_cast<size_t>(model.steps) * workers, 0);
  result->tensor_wait_us.assign(model.tensor_bytes.size(), 0);
  result->compute_busy_us.assign(workers, 0);
  result->sent_bytes.assign(model.host_bps.size(), 0);
  result->received_bytes.assign(model.host_bps.size(), 0);
  result->window_begin_us = result->window_end_us = kNeverUs;
  if (model.has_window()) {
    result->window_begin_us = model.window_begin_us;
    result->window_end_us = model.window_end_us;
  }
  to_begin_ = to_end_ = model.workers;
  for (int32_t worker = 0; worker < model.workers; ++worker) {
    if (model.start_us > 0) {
      After(model.start_us, Timed{What::kBegin, worker, 0, 0, kNone, 0});
    } else {
      Begin(worker, 0, kNone);
    }
  }
}

bool Engine::Follows(int32_t piece) const {
  const auto i = static_cast<size_t>(piece);
  if (model_.all_reduces() || pushed_[i] != 0 || model_.piece_pulled[i] == 0 || pull_waits_[i] > 0) return false;
  if (model_.update_pieces) {
    const int32_t group = model_.piece_group[i];
    return group != kNone && group_push_count_[static_cast<size_t>(group)] > 0;
  }
  const Table::Row tensors = model_.piece_tensors[piece];
  return std::all_of(tensors.begin(), tensors.end(),
                     [this](int32_t tensor) { return tensor_push_count_[static_cast<size_t>(tensor)] > 0; });
}

// Transfers first: whether they disturb an op is known when it starts.
void Engine::Settle(double now_us) {
  traffic_.Settle(now_us);
  for (const int32_t worker : dirty_workers_) {
    workers_[static_cast<size_t>(worker)].dirty = false;
    Compute(worker);
  }
  dirty_workers_.clear();
}

void Engine::Advance(double now_us) {
  if (NextUs() <= now_us) result_->end_us = now_us;
  now_us_ = now_us;
  while (!timed_.empty() && timed_.top().at_us <= now_us_) {
    const Timed timed = timed_.top();
    timed_.pop();
    Handle(timed);
  }
  traffic_.Advance(now_us_, &arrived_);
}

void Engine::FlowEnded(int32_t flow) {
  result_->end_us = now_us_;
  traffic_.FlowEnded(flow, now_us_, &arrived_);
}

void Engine::Arrive() {
  for (const int32_t transfer : arrived_) Arrived(transfer);
  arrived_.clear();
}

bool Engine::Finish() {
  if (to_end_ > 0) return false;
  result_->path = CriticalPath(result_->events, last_event_, last_begin_us_);
  return true;
}

void Engine::After(double at_us, Timed timed) {
  timed.at_us = at_us;
  timed.number = next_number_++;
  timed_.push(timed);
}

void Engine::Handle(const Timed& timed) {
  switch (timed.what) {
    case What::kBegin:
      Begin(timed.worker, timed.step, timed.event);
      break;
    case What::kOps:
      BeginOps(timed.worker);
      break;
    case What::kComputed:
      Computed(timed.worker, timed.index, timed.since_us, timed.event);
      break;
    case What::kHeld:
      Push(timed.worker, timed.index, timed.step, timed.event);
      break;
    case What::kProcessed:
      Processed(timed.kind, timed.worker, timed.index, timed.step, timed.event);
      break;
    case What::kMessageProcessed: {
      const auto found = processing_.find(timed.index);
      const Transfer transfer = std::move(found->second);
      processing_.erase(found);
      MessageProcessed(transfer, timed.event);
      break;
    }
    case What::kUpdated: {
      Event event{Kind::kUpdate, timed.index, model_.one_update() ? kNone : timed.worker, timed.step, timed.event};
      event.ready_us = event.start_us = timed.since_us;
      event.end_us = now_us_;
      Updated(timed.worker, timed.step, timed.index, Log(event));
      break;
    }
  }
}

void Engine::Touch(int32_t worker) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  if (one.dirty) return;
  one.dirty = true;
  dirty_workers_.push_back(worker);
}

void Engine::Begin(int32_t worker, int32_t step, int32_t event) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  one.step = step;
  one.computing = false;
  one.begin_event = event;
  result_->begin_us[static_cast<size_t>(step) * workers_.size() + static_cast<size_t>(worker)] = now_us_;
  if (step == model_.measured_from && --to_begin_ == 0 && !model_.has_window()) result_->window_begin_us = now_us_;
  if (step == model_.steps) {
    if (--to_end_ == 0) {
      if (!model_.has_window()) result_->window_end_us = now_us_;
      last_event_ = event;
      last_begin_us_ = result_->begin_us[(static_cast<size_t>(step) - 1) * workers_.size() + static_cast<size_t>(worker)];
    }
    return;
  }
  if (model_.step_overhead_us > 0) {
    After(now_us_ + model_.step_overhead_us, Timed{What::kOps, worker, 0, step, event, now_us_});
  } else {
    BeginOps(worker);
  }
}

void Engine::BeginOps(int32_t worker) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  one.computing = true;
  one.ops_left = model_.ops();
  one.idle = model_.streams;
  one.idle_since_us = now_us_;
  one.push_waits = push_waits_;
  one.pull_waits = pull_waits_;
  AskFor(worker, asked_always_);
  if (one.step == 0) AskFor(worker, asked_first_);
  one.op_waits = Counts(model_.op_inputs);
  for (int32_t op = 0; op < model_.ops(); ++op) {
    for (const int32_t tensor : model_.op_reads[op]) {
      const int64_t needed = (one.step + int64_t{1}) * arrival_count_[static_cast<size_t>(tensor)];
      if (one.arrivals[static_cast<size_t>(tensor)] < needed) ++one.op_waits[static_cast<size_t>(op)];
    }
    if (one.op_waits[static_cast<size_t>(op)] == 0) {
      one.op_waits[static_cast<size_t>(op)] = 1;
      Satisfied(worker, op, kNone, one.begin_event);
    }
  }
  if (one.ops_left == 0) StepComputed(worker, one.begin_event);
}

void Engine::AskFor(int32_t worker, const std::vector<int32_t>& pieces) {
  const int32_t step = workers_[static_cast<size_t>(worker)].step;
  order_ = pieces;
  if (model_.shuffle) {
    Random seeds(model_.seed);
    Random random(seeds.Next() + static_cast<uint64_t>(step) * workers_.size() + static_cast<uint64_t>(worker));
    const auto orders = static_cast<uint64_t>(model_.request_orders.rows());
    if (orders == 0) {
      random.Shuffle(&order_);
    } else {
      const Table::Row row = model_.request_orders[static_cast<int32_t>(random.Next() % orders)];
      for (int32_t place = 0; place < row.size(); ++place) place_[static_cast<size_t>(row.first[place])] = place;
      std::sort(order_.begin(), order_.end(),
                [this](int32_t a, int32_t b) { return place_[static_cast<size_t>(a)] < place_[static_cast<size_t>(b)]; });
    }
  }
  const int32_t event = workers_[static_cast<size_t>(worker)].begin_event;
  for (const int32_t piece : order_) Send(Kind::kPull, worker, piece, step, event);
}

void Engine::Satisfied(int32_t worker, int32_t op, int32_t cause, int32_t event) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  const auto i = static_cast<size_t>(op);
  if (--one.op_waits[i] > 0) return;
  one.op_cause[i] = cause;
  one.op_why[i] = event;
  one.op_ready_us[i] = now_us_;
  one.ready.push(op);
  Touch(worker);
}

void Engine::Compute(int32_t worker) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  double scale = one.step < model_.steps
                     ? model_.compute_scale[static_cast<size_t>(one.step) * workers_.size() + static_cast<size_t>(worker)]
                     : 1;
  scale *= 1 + (model_.contention - 1) * 0.5 * traffic_.BusyDirections(model_.worker_host[static_cast<size_t>(worker)]);
  while (one.idle > 0 && !one.ready.empty()) {
    const int32_t op = one.ready.top();
    const auto i = static_cast<size_t>(op);
    one.ready.pop();
    if (one.idle == model_.streams && one.op_cause[i] <= -2 && one.step >= model_.measured_from) {
      result_->tensor_wait_us[static_cast<size_t>(-2 - one.op_cause[i])] += now_us_ - one.idle_since_us;
    }
    --one.idle;
    if (op == model_.origin_op) one.origin_us = now_us_;
    Event event{Kind::kCompute, op, worker, one.step, one.op_why[i]};
    event.busy_event = now_us_ > one.op_ready_us[i] ? one.last_op_event : kNone;
    event.ready_us = one.op_ready_us[i];
    event.start_us = now_us_;
    event.end_us = now_us_ + model_.op_us[i] * scale;
    After(event.end_us, Timed{What::kComputed, worker, op, one.step, Log(event), now_us_});
  }
}

void Engine::Computed(int32_t worker, int32_t op, double start_us, int32_t event) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  result_->compute_busy_us[static_cast<size_t>(worker)] += InWindow(start_us, now_us_);
  if (++one.idle == model_.streams) one.idle_since_us = now_us_;
  one.last_op_event = event;
  Touch(worker);
  for (const int32_t consumer : op_consumers_[op]) Satisfied(worker, consumer, op, event);
  for (const int32_t piece : op_pulls_[op]) {
    if (--one.pull_waits[static_cast<size_t>(piece)] == 0) Send(Kind::kPull, worker, piece, one.step, event);
  }
  for (const int32_t piece : op_pushes_[op]) {
    if (--one.push_waits[static_cast<size_t>(piece)] == 0) GradientsMade(worker, piece, event);
  }
  if (--one.ops_left == 0) StepComputed(worker, event);
}

void Engine::StepComputed(int32_t worker, int32_t event) {
  const int32_t step = workers_[static_cast<size_t>(worker)].step;
  double& finish_us = result_->finish_us[static_cast<size_t>(step) * workers_.size() + static_cast<size_t>(worker)];
  finish_us = std::max(finish_us, now_us_);
  const int32_t lane = LaneOf(worker, step);
  --workers_left_[static_cast<size_t>(lane)];
  if (model_.barrier) {
    MaybeEndStep(lane, step, event);
  } else {
    workers_left_[static_cast<size_t>(lane)] += !model_.one_update();
    Begin(worker, step + 1, event);
  }
}

// With the barrier: a step is over when everybody has computed and all updates are applied.
void Engine::MaybeEndStep(int32_t lane, int32_t step, int32_t event) {
  const auto i = static_cast<size_t>(lane);
  if (!model_.barrier || workers_left_[i] > 0 || updates_left_[i] > 0) return;
  if (model_.one_update()) {
    for (int32_t worker = 0; worker < model_.workers; ++worker) Begin(worker, step + 1, event);
  } else {
    workers_left_[i] = 1;
    updates_left_[i] = pushed_pieces_;
    Begin(lane, step + 1, event);
  }
}

}  // namespace tfsched::simulator
