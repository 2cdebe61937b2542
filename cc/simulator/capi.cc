// Copies arrays in and out; no exception leaves.
#include "cc/simulator/capi.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/core/policy.h"
#include "cc/simulator/jobs.h"
#include "cc/simulator/model.h"

namespace tfsched::simulator {
namespace {

struct Owner {
  explicit Owner(Result found) : result(std::move(found)) {}
  Result result;
  std::vector<int32_t> numbers;
  std::vector<double> times_us;
};

template <typename T>
std::vector<T> Copy(const T* values, int64_t count) {
  return std::vector<T>(values, values + count);
}

Table CopyTable(const TfschedSimTable& table, int32_t rows) {
  Table result;
  result.offsets = Copy(table.offsets, int64_t{rows} + 1);
  result.values = Copy(table.values, result.offsets.back());
  return result;
}

Model CopyModel(const TfschedSimModel& from) {
  Model model;
  model.workers = from.workers;
  model.servers = from.servers;
  model.streams = from.streams;
  model.steps = from.steps;
  model.measured_from = from.measured_from;
  model.recorded_from = from.recorded_from;
  model.barrier = from.barrier != 0;
  model.synchronous = from.synchronous != 0;
  model.update_pieces = from.update_pieces != 0;
  model.shuffle = from.shuffle != 0;
  model.seed = from.seed;
  model.credit_bytes = from.credit_bytes;
  model.grace_us = from.grace_us;
  model.rate_bps = from.rate_bps;
  model.exchange_piece_bytes = from.exchange_piece_bytes;
  model.whole_bytes = from.whole_bytes;
  model.exchange_pace_bps = from.exchange_pace_bps;
  model.window_bytes = from.window_bytes;
  model.way = from.way;
  model.priority = from.priority;
  model.startup_us = from.startup_us;
  model.release_us = from.release_us;
  model.step_overhead_us = from.step_overhead_us;
  model.update_us_per_byte = from.update_us_per_byte;
  model.processing_us_per_byte = from.processing_us_per_byte;
  model.contention = from.contention;
  model.start_us = from.start_us;
  model.window_begin_us = from.window_begin_us;
  model.window_end_us = from.window_end_us;
  model.pull_policy = from.pull_policy;
  model.push_policy = from.push_policy;
  model.host_bps = Copy(from.host_bps, from.hosts);
  model.worker_host = Copy(from.worker_host, from.workers);
  model.server_host = Copy(from.server_host, from.servers);
  model.compute_scale = Copy(from.compute_scale, int64_t{from.steps} * from.workers);
  model.op_us = Copy(from.op_us, from.ops);
  model.op_inputs = CopyTable(from.op_inputs, from.ops);
  model.op_reads = CopyTable(from.op_reads, from.ops);
  model.pull_inputs = CopyTable(from.pull_inputs, from.pieces);
  model.push_inputs = CopyTable(from.push_inputs, from.pieces);
  model.piece_tensors = CopyTable(from.piece_tensors, from.pieces);
  model.request_orders = CopyTable(from.request_orders, from.orders);
  model.tensor_bytes = Copy(from.tensor_bytes, from.tensors);
  model.piece_bytes = Copy(from.piece_bytes, from.pieces);
  model.piece_server = Copy(from.piece_server, from.pieces);
  model.piece_group = Copy(from.piece_group, from.pieces);
  model.piece_pulled = Copy(from.piece_pulled, from.pieces);
  model.pull_rank = Copy(from.pull_rank, from.pieces);
  model.origin_op = from.origin_op;
  model.piece_hold_us = Copy(from.piece_hold_us, from.pieces);
  model.push_rank = Copy(from.push_rank, from.pieces);
  return model;
}

void Show(std::unique_ptr<Owner> owner, TfschedSimResult* out) {
  const Result& result = owner->result;
  for (const Event& event : result.events) {
    for (const int32_t number :
         {static_cast<int32_t>(event.kind), event.what, event.worker, event.step, event.ready_event, event.busy_event}) {
      owner->numbers.push_back(number);
    }
    for (const double us : {event.ready_us, event.start_us, event.end_us}) owner->times_us.push_back(us);
  }
  out->events = static_cast<int64_t>(result.events.size());
  out->path = static_cast<int64_t>(result.path.size());
  out->pulled_bytes = result.pulled_bytes;
  out->pushed_bytes = result.pushed_bytes;
  out->messages = result.messages;
  out->ring_busy_us = result.ring_busy_us;
  out->window_begin_us = result.window_begin_us;
  out->window_end_us = result.window_end_us;
  out->end_us = result.end_us;
  out->begin_us = result.begin_us.data();
  out->finish_us = result.finish_us.data();
  out->tensor_wait_us = result.tensor_wait_us.data();
  out->compute_busy_us = result.compute_busy_us.data();
  out->sent_bytes = result.sent_bytes.data();
  out->received_bytes = result.received_bytes.data();
  out->event_numbers = owner->numbers.data();
  out->event_times_us = owner->times_us.data();
  out->path_events = result.path.data();
  out->owner = owner.release();
}

std::string Run(const TfschedSimModel* from, int32_t count, TfschedSimResult* out) {
  if (count < 1) return "there is no model";
  if (from->size != static_cast<int64_t>(sizeof(*from))) {
    return "libtfsched_sim.so is of another version; run 'python setup.py build_simulator'";
  }
  std::vector<Model> models;
  for (int32_t job = 0; job < count; ++job) {
    models.push_back(CopyModel(from[job]));
    std::string wrong = models.back().Check();
    if (wrong.empty() && models.back().host_bps != models[0].host_bps) wrong = "host_bps";
    if (!wrong.empty()) return "these arrays of the model do not fit: " + wrong;
  }
  std::vector<Result> results;
  if (!RunJobs(models, &results)) return "something waits for what never comes";
  std::vector<std::unique_ptr<Owner>> owners;
  for (Result& result : results) owners.push_back(std::make_unique<Owner>(std::move(result)));
  for (int32_t job = 0; job < count; ++job) Show(std::move(owners[static_cast<size_t>(job)]), &out[job]);
  return "";
}

}  // namespace
}  // namespace tfsched::simulator

const char* tfsched_sim_run_jobs(const TfschedSimModel* models, int32_t count, TfschedSimResult* results) {
  static thread_local std::string error;
  for (int32_t job = 0; job < count; ++job) results[job] = TfschedSimResult();
  try {
    error = tfsched::simulator::Run(models, count, results);
  } catch (const std::exception& exception) {  // out of memory
    error = exception.what();
  }
  return error.empty() ? nullptr : error.c_str();
}

void tfsched_sim_free(TfschedSimResult* result) {
  delete static_cast<tfsched::simulator::Owner*>(result->owner);
  *result = TfschedSimResult();
}

const char* tfsched_sim_policies() {
  static const auto* names = new std::string([] {
    std::string all;
    for (const std::string& name : tfsched::PolicyNames()) all += (all.empty() ? "" : " ") + name;
    return all;
  }());
  return names->c_str();
}
