// Submits to the production schedulers and carries what they start; see traffic.h.
#include "cc/simulator/traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tfsched::simulator {
namespace {

// The core's clock has whole microseconds.
int64_t CoreUs(double us) { return static_cast<int64_t>(std::min(us, 4e18)); }

}  // namespace

Traffic::Traffic(const Model& model, Links* links, int32_t first_flow)
    : model_(model), links_(links), first_flow_(first_flow) {
  SchedulerOptions options;
  options.grace_us = model.grace_us;
  options.trace_capacity = 0;
  options.max_idle_groups = 1 << 20;
  const auto add = [&](std::string name) {
    Task task;
    task.scheduler = std::make_unique<Scheduler>(options);
    if (model.rate_bps > 0) {
      OverridesChange cap;
      cap.rate_bps = model.rate_bps;
      task.scheduler->Configure(cap, 0);
    }
    task.name = std::move(name);
    tasks_.push_back(std::move(task));
  };
  if (model.ring()) {
    add("ring");
    connections_.resize(1);
  } else {
    for (int32_t server = 0; server < model.servers; ++server) add("ps" + std::to_string(server));
    for (int32_t worker = 0; worker < model.workers; ++worker) add("w" + std::to_string(worker));
    std::vector<int32_t> from, to;
    AddFlows(model, &from, &to);
    connections_.resize(from.size());
  }
  sending_.assign(model.host_bps.size(), 0);
  receiving_.assign(model.host_bps.size(), 0);
  pull_count_.assign(static_cast<size_t>(std::max(model.servers, 1)), 0);
  for (size_t piece = 0; piece < model.piece_pulled.size(); ++piece) {
    if (model.piece_pulled[piece] != 0) ++pull_count_[static_cast<size_t>(model.piece_server[piece])];
  }
}

// Each worker to each other one; or each server to each worker, and the same back.
void Traffic::AddFlows(const Model& model, std::vector<int32_t>* from, std::vector<int32_t>* to) {
  if (model.ring()) return;
  const std::vector<int32_t>& senders = model.exchanges() ? model.worker_host : model.server_host;
  for (const bool back : {false, true}) {
    if (back && model.exchanges()) break;
    for (const int32_t sender : senders) {
      for (const int32_t receiver : model.worker_host) {
        from->push_back(back ? receiver : sender);
        to->push_back(back ? sender : receiver);
      }
    }
  }
}

int32_t Traffic::SenderOf(const Transfer& transfer) const {
  if (model_.ring()) return 0;
  if (transfer.kind == Kind::kMessage) return transfer.worker;
  if (transfer.kind == Kind::kPull) return model_.piece_server[static_cast<size_t>(transfer.piece)];
  return model_.servers + transfer.worker;
}

int32_t Traffic::ConnectionOf(const Transfer& transfer) const {
  if (model_.ring()) return 0;
  if (transfer.kind == Kind::kMessage) return transfer.worker * model_.workers + transfer.message.peer;
  const int32_t server = model_.piece_server[static_cast<size_t>(transfer.piece)];
  const int32_t pull = server * model_.workers + transfer.worker;
  return transfer.kind == Kind::kPull ? pull : model_.servers * model_.workers + pull;
}

std::pair<size_t, size_t> Traffic::HostsOf(const Transfer& transfer) const {
  const auto worker = static_cast<size_t>(model_.worker_host[static_cast<size_t>(transfer.worker)]);
  if (transfer.kind == Kind::kMessage) {
    return {worker, static_cast<size_t>(model_.worker_host[static_cast<size_t>(transfer.message.peer)])};
  }
  const auto server =
      static_cast<size_t>(model_.server_host[static_cast<size_t>(model_.piece_server[static_cast<size_t>(transfer.piece)])]);
  return transfer.kind == Kind::kPull ? std::make_pair(server, worker) : std::make_pair(worker, server);
}

void Traffic::Touch(int32_t task) {
  Task& one = tasks_[static_cast<size_t>(task)];
  if (one.dirty) return;
  one.dirty = true;
  dirty_tasks_.push_back(task);
}

void Traffic::After(double at_us, What what, int32_t index, uint64_t id) {
  timed_.push(Timed{at_us, next_number_++, what, index, id});
}

void Traffic::Submit(Transfer transfer, double now_us) {
  transfer.ready_us = now_us;
  const auto piece = static_cast<size_t>(transfer.piece);
  const bool pull = transfer.kind == Kind::kPull;
  auto info = std::make_shared<TransferInfo>();
  const auto server = static_cast<size_t>(model_.piece_server[piece]);
  if (transfer.kind != Kind::kMessage) transfer.bytes = model_.piece_bytes[piece];
  if (model_.ring()) {
    info->receiver = tasks_[0].name;
  } else if (transfer.kind == Kind::kMessage) {
    info->receiver = tasks_[static_cast<size_t>(transfer.message.peer)].name;
  } else {
    info->receiver = tasks_[pull ? static_cast<size_t>(model_.servers + transfer.worker) : server].name;
  }
  info->policy = pull ? model_.pull_policy : model_.push_policy;
  info->rank = pull ? model_.pull_rank[piece] : model_.push_rank[piece];
  info->count = pull ? pull_count_[server] : model_.pieces();
  info->credit_bytes = model_.credit_bytes;

  const int32_t sender = SenderOf(transfer);
  Task& task = tasks_[static_cast<size_t>(sender)];
  CommTask comm;
  comm.info = std::move(info);
  comm.sender = task.name;
  comm.step_id = transfer.step + 1;
  comm.bytes = transfer.bytes;
  comm.turn = transfer.turn;
  comm.requested_us = comm.ready_us = CoreUs(now_us);
  int32_t index;
  if (free_.empty()) {
    index = static_cast<int32_t>(transfers_.size());
    transfers_.push_back(transfer);
  } else {
    index = free_.back();
    free_.pop_back();
    transfers_[static_cast<size_t>(index)] = transfer;
  }
  comm.start = [this, index](uint64_t, bool) { HandOver(index); };
  const uint64_t id = task.scheduler->Submit(std::move(comm), CoreUs(now_us));
  transfers_[static_cast<size_t>(index)].id = id;
  Touch(sender);
}

void Traffic::HandOver(int32_t transfer) {
  const int32_t number = ConnectionOf(at(transfer));
  Connection& connection = connections_[static_cast<size_t>(number)];
  Append(&connection, transfer);
  if (connection.busy || connection.dirty) return;
  connection.dirty = true;
  dirty_connections_.push_back(number);
}

void Traffic::Append(Connection* connection, int32_t transfer) {
  transfers_[static_cast<size_t>(transfer)].next = -1;
  if (connection->first < 0) {
    connection->first = transfer;
  } else {
    transfers_[static_cast<size_t>(connection->last)].next = transfer;
  }
  connection->last = transfer;
}

int64_t Traffic::InTurn(const Transfer& transfer) const {
  const int64_t left = transfer.bytes - transfer.sent;
  return model_.window_bytes > 0 ? std::min(left, model_.window_bytes) : left;
}

void Traffic::Settle(double now_us) {
  for (const int32_t number : dirty_tasks_) {
    Task& task = tasks_[static_cast<size_t>(number)];
    task.dirty = false;
    starts_.clear();
    const int64_t wake = task.scheduler->Poll(CoreUs(now_us), &starts_);
    for (Start& start : starts_) start.task.start(start.task.id, start.dropped);
    if (wake != kNever && static_cast<double>(wake) > now_us && task.wake_us != static_cast<double>(wake)) {
      task.wake_us = static_cast<double>(wake);
      After(task.wake_us, What::kWake, number);
    }
  }
  dirty_tasks_.clear();
  for (const int32_t number : dirty_connections_) {
    connections_[static_cast<size_t>(number)].dirty = false;
    Begin(number, now_us);
  }
  dirty_connections_.clear();
}

void Traffic::Begin(int32_t number, double now_us) {
  Connection& connection = connections_[static_cast<size_t>(number)];
  if (connection.busy || connection.first < 0) return;
  connection.busy = true;
  Transfer& transfer = transfers_[static_cast<size_t>(connection.first)];
  if (transfer.sent == 0) {
    transfer.start_us = now_us;
    transfer.busy_event = connection.last_event;
  }
  if (model_.ring()) {
    // Reduce-scatter and all-gather: 2 (N - 1) rounds, in each of which every worker sends its neighbour 1 / N of the bytes.
    const double rounds = 2.0 * (model_.workers - 1);
    const auto bytes = static_cast<double>(transfer.bytes);
    const double slowest_bps = *std::min_element(model_.host_bps.begin(), model_.host_bps.end());
    After(now_us + rounds * (model_.startup_us + bytes / model_.workers * 8e6 / slowest_bps), What::kArrived, number);
  } else {
    Count(transfer, 1);
    After(now_us + (transfer.sent == 0 ? model_.startup_us : 0), What::kStarted, number);
  }
}

void Traffic::Count(const Transfer& transfer, int32_t change) {
  const auto [from, to] = HostsOf(transfer);
  if (from == to) return;
  sending_[from] += change;
  receiving_[to] += change;
}

int32_t Traffic::BusyDirections(int32_t host) const {
  if (model_.ring()) return connections_[0].busy ? 2 : 0;
  return (sending_[static_cast<size_t>(host)] > 0 ? 1 : 0) + (receiving_[static_cast<size_t>(host)] > 0 ? 1 : 0);
}

void Traffic::Advance(double now_us, std::vector<int32_t>* arrived) {
  while (!timed_.empty() && timed_.top().at_us <= now_us) {
    const Timed timed = timed_.top();
    timed_.pop();
    switch (timed.what) {
      case What::kStarted: {
        const Transfer& transfer = at(connections_[static_cast<size_t>(timed.index)].first);
        const auto [from, to] = HostsOf(transfer);
        if (from == to) {
          Arrive(timed.index, now_us, arrived);
        } else {
          links_->Start(first_flow_ + timed.index, static_cast<double>(InTurn(transfer)), now_us);
        }
        break;
      }
      case What::kArrived:
        Arrive(timed.index, now_us, arrived);
        break;
      case What::kReleased:
        tasks_[static_cast<size_t>(timed.index)].scheduler->Finish(timed.id, CoreUs(now_us));
        Touch(timed.index);
        break;
      case What::kWake:
        Touch(timed.index);
        break;
    }
  }
}

void Traffic::Arrive(int32_t number, double now_us, std::vector<int32_t>* arrived) {
  Connection& connection = connections_[static_cast<size_t>(number)];
  const int32_t index = connection.first;
  Transfer& transfer = transfers_[static_cast<size_t>(index)];
  connection.first = transfer.next;
  connection.busy = false;
  if (!model_.ring()) {
    Count(transfer, -1);
    transfer.sent += InTurn(transfer);
  }
  if (!connection.dirty) {
    connection.dirty = true;
    dirty_connections_.push_back(number);
  }
  if (!model_.ring() && transfer.sent < transfer.bytes) {
    Append(&connection, index);
    return;
  }
  const int32_t sender = SenderOf(transfer);
  if (model_.release_us > 0) {
    After(now_us + model_.release_us, What::kReleased, sender, transfer.id);
  } else {
    tasks_[static_cast<size_t>(sender)].scheduler->Finish(transfer.id, CoreUs(now_us));
    Touch(sender);
  }
  arrived->push_back(index);
}

void Traffic::Free(int32_t transfer, int32_t event) {
  connections_[static_cast<size_t>(ConnectionOf(at(transfer)))].last_event = event;
  free_.push_back(transfer);
}

}  // namespace tfsched::simulator
