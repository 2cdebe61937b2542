// Checks that arrays fit together, for what indexes them does not.
#include "cc/simulator/model.h"

#include <algorithm>

#include "cc/core/policy.h"

namespace tfsched::simulator {
namespace {

bool Fits(const Table& table, int32_t rows, int32_t bound) {
  if (table.rows() != rows || table.offsets.front() != 0) return false;
  if (table.offsets.back() != static_cast<int32_t>(table.values.size())) return false;
  if (!std::is_sorted(table.offsets.begin(), table.offsets.end())) return false;
  return std::all_of(table.values.begin(), table.values.end(), [&](int32_t v) { return v >= 0 && v < bound; });
}

bool Within(const std::vector<int32_t>& values, int32_t rows, int32_t bound) {
  return static_cast<int32_t>(values.size()) == rows &&
         std::all_of(values.begin(), values.end(), [&](int32_t v) { return v >= 0 && v < bound; });
}

// Numbers of groups are no larger than those of pieces, so that there are no more groups than pieces.
bool InGroups(const std::vector<int32_t>& groups, int32_t pieces) {
  return static_cast<int32_t>(groups.size()) == pieces &&
         std::all_of(groups.begin(), groups.end(), [&](int32_t group) { return group >= -1 && group < pieces; });
}

}  // namespace

Table Table::Inverse(int32_t count) const {
  Table result;
  result.offsets.assign(static_cast<size_t>(count) + 1, 0);
  for (const int32_t value : values) ++result.offsets[static_cast<size_t>(value) + 1];
  for (size_t i = 1; i < result.offsets.size(); ++i) result.offsets[i] += result.offsets[i - 1];
  result.values.resize(values.size());
  std::vector<int32_t> next(result.offsets.begin(), result.offsets.end() - 1);
  for (int32_t row = 0; row < rows(); ++row) {
    for (const int32_t value : (*this)[row]) result.values[static_cast<size_t>(next[static_cast<size_t>(value)]++)] = row;
  }
  return result;
}

std::string Model::Check() const {
  const auto hosts = static_cast<int32_t>(host_bps.size());
  const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  if (workers < 1 || servers < 0 || streams < 1 || steps < 1) return "workers, servers, streams, steps";
  if (measured_from < 0 || measured_from >= steps || recorded_from < 0) return "measured_from, recorded_from";
  if (all_reduces() && !synchronous) return "synchronous";
  if (exchange_piece_bytes < 0 || whole_bytes < 0 || exchange_pace_bps < 0 || way < -1 || way > 3) return "exchange";
  if (!Within(worker_host, workers, hosts)) return "worker_host";
  if (!Within(server_host, servers, hosts)) return "server_host";
  if (!std::all_of(host_bps.begin(), host_bps.end(), [](double bps) { return bps > 0; })) return "host_bps";
  if (count(compute_scale) != int64_t{steps} * workers) return "compute_scale";
  for (const double us : {startup_us, release_us, step_overhead_us, update_us_per_byte, processing_us_per_byte}) {
    if (!(us >= 0)) return "times";
  }
  if (!(contention >= 1)) return "contention";
  for (const double us : {start_us, window_begin_us, window_end_us - window_begin_us}) {
    if (!(us >= 0)) return "start_us, window";
  }
  if (rate_bps < 0 || window_bytes < 0) return "rate_bps, window_bytes";
  if (!std::all_of(op_us.begin(), op_us.end(), [](double us) { return us >= 0; })) return "op_us";
  if (!Fits(op_inputs, ops(), ops())) return "op_inputs";
  if (!Fits(op_reads, ops(), tensors())) return "op_reads";
  if (!Fits(pull_inputs, pieces(), ops())) return "pull_inputs";
  if (!Fits(push_inputs, pieces(), ops())) return "push_inputs";
  if (!Fits(piece_tensors, pieces(), tensors())) return "piece_tensors";
  if (!Fits(request_orders, request_orders.rows(), pieces())) return "request_orders";
  for (int32_t order = 0; order < request_orders.rows(); ++order) {
    std::vector<int32_t> sorted(request_orders[order].begin(), request_orders[order].end());
    std::sort(sorted.begin(), sorted.end());
    for (int32_t piece = 0; piece < pieces(); ++piece) {
      if (static_cast<int32_t>(sorted.size()) != pieces() || sorted[static_cast<size_t>(piece)] != piece) {
        return "request_orders";
      }
    }
  }
  for (int32_t piece = 0; piece < pieces(); ++piece) {
    if (piece_tensors[piece].size() == 0) return "piece_tensors";
  }
  if (!std::all_of(piece_bytes.begin(), piece_bytes.end(), [](int64_t bytes) { return bytes >= 0; })) return "piece_bytes";
  if (!Within(piece_server, pieces(), std::max(servers, 1))) return "piece_server";
  if (!InGroups(piece_group, pieces())) return "piece_group";
  if (count(piece_pulled) != pieces() || count(pull_rank) != pieces() || count(push_rank) != pieces()) return "ranks";
  if (count(piece_hold_us) != pieces() || origin_op < 0 || (ops() > 0 && origin_op >= ops())) return "piece_hold_us";
  if (!std::all_of(piece_hold_us.begin(), piece_hold_us.end(), [](double us) { return us >= 0; })) return "piece_hold_us";
  if (!HasPolicy(pull_policy) || !HasPolicy(push_policy)) return "policy";
  return "";
}

}  // namespace tfsched::simulator
