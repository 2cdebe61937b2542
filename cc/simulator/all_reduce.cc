// All-reduces by messages: each worker runs the algorithm that runs in production, and its messages share the links.
#include <algorithm>
#include <utility>

#include "cc/collective/choice.h"
#include "cc/simulator/engine.h"

namespace tfsched::simulator {
namespace {

// Cut at multiples of 64 bytes, as tensors of any type are.
Layout LayoutOf(const Model& model, int64_t bytes) { return Layout(model.workers, bytes, 1, model.exchange_piece_bytes); }

std::unique_ptr<Algorithm> AlgorithmOf(const Model& model, const Layout& layout, int32_t worker) {
  Conditions conditions;
  if (model.way >= 0) conditions.way = static_cast<Way>(model.way);
  conditions.pace_bps = model.exchange_pace_bps;
  return MakeAlgorithm(Choose(model.workers, layout.elements(), model.whole_bytes, conditions), layout, worker);
}

}  // namespace

// The worker has its own gradient: it asks for what others send, and sends what it can.
void Engine::BeginExchange(int32_t worker, int32_t piece, int32_t step, int32_t event) {
  Parts& parts = exchanges_[{step, piece}];
  parts.resize(workers_.size());
  Part& own = parts[static_cast<size_t>(worker)];
  const Layout layout = LayoutOf(model_, model_.piece_bytes[static_cast<size_t>(piece)]);
  own.algorithm = AlgorithmOf(model_, layout, worker);
  own.pieces = layout.pieces();
  own.first_turn = ++exchanges_begun_ << 24;
  own.left = model_.workers > 1 ? own.algorithm->Incoming().size() : 0;
  for (Transfer& held : std::exchange(own.held, {})) {
    held.ready_event = event;
    traffic_.Submit(held, now_us_);
  }
  if (model_.workers > 1) SendMessages(own.algorithm->Outgoing(), worker, piece, step, event);
  if (own.left == 0) Exchanged(worker, piece, step, event);
}

// A message leaves when its receiver has asked for it, which it does when its own gradient exists.
void Engine::SendMessages(const std::vector<Message>& messages, int32_t worker, int32_t piece, int32_t step, int32_t event) {
  Parts& parts = exchanges_[{step, piece}];
  for (const Message& message : messages) {
    Transfer transfer;
    transfer.kind = Kind::kMessage;
    transfer.worker = worker;
    transfer.piece = piece;
    transfer.step = step;
    transfer.ready_event = event;
    transfer.bytes = message.range.size();
    transfer.message = message;
    const Part& sender = parts[static_cast<size_t>(worker)];
    transfer.turn = sender.first_turn + TurnOf(message, sender.pieces);
    Part& receiver = parts[static_cast<size_t>(message.peer)];
    if (receiver.algorithm == nullptr) {
      receiver.held.push_back(std::move(transfer));
    } else {
      traffic_.Submit(std::move(transfer), now_us_);
    }
  }
}

void Engine::MessageProcessed(const Transfer& transfer, int32_t event) {
  const int32_t worker = transfer.message.peer;
  Part& part = exchanges_[{transfer.step, transfer.piece}][static_cast<size_t>(worker)];
  Message arrived = transfer.message;
  arrived.peer = transfer.worker;
  SendMessages(part.algorithm->Arrived(arrived).outgoing, worker, transfer.piece, transfer.step, event);
  if (--part.left == 0) Exchanged(worker, transfer.piece, transfer.step, event);
}

// The worker has the sum.
void Engine::Exchanged(int32_t worker, int32_t piece, int32_t step, int32_t event) {
  double& finish_us = result_->finish_us[static_cast<size_t>(step) * workers_.size() + static_cast<size_t>(worker)];
  finish_us = std::max(finish_us, now_us_);
  const auto found = exchanges_.find({step, piece});
  const bool over = std::all_of(found->second.begin(), found->second.end(),
                                [](const Part& part) { return part.algorithm != nullptr && part.left == 0; });
  if (over) {
    result_->pushed_bytes += model_.piece_bytes[static_cast<size_t>(piece)];
    exchanges_.erase(found);
  }
  AllCopiesHere(worker, step, piece, event);
}

}  // namespace tfsched::simulator
