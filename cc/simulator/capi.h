// The simulator's C interface, which Python loads: flat arrays in, arrays out.
#ifndef TFSCHED_CC_SIMULATOR_CAPI_H_
#define TFSCHED_CC_SIMULATOR_CAPI_H_

#include <cstdint>

// Everything else in the library is hidden, for a process may also load tfsched's own with the same core in it.
#define TFSCHED_SIM_EXPORT __attribute__((visibility("default")))

extern "C" {

// A list of lists; see Table in model.h.
struct TfschedSimTable {
  const int32_t* offsets;
  const int32_t* values;
};

// The fields of Model; arrays belong to the caller and are copied. tfsched/simulator/native.py has the same layout.
struct TfschedSimModel {
  int64_t size;  // of this struct: both sides have to be of one version
  int32_t workers, servers, hosts, ops, tensors, pieces, streams, steps, measured_from, recorded_from;
  int32_t orders, origin_op, way, priority;
  int32_t barrier, synchronous, update_pieces, shuffle;
  uint64_t seed;
  int64_t credit_bytes, grace_us, rate_bps, exchange_piece_bytes, whole_bytes, exchange_pace_bps, window_bytes;
  double startup_us, release_us, step_overhead_us, update_us_per_byte, processing_us_per_byte, contention;
  double start_us, window_begin_us, window_end_us;
  const char* pull_policy;
  const char* push_policy;
  const double* host_bps;
  const int32_t* worker_host;
  const int32_t* server_host;
  const double* compute_scale;
  const double* op_us;
  TfschedSimTable op_inputs, op_reads, pull_inputs, push_inputs, piece_tensors, request_orders;
  const int64_t* tensor_bytes;
  const int64_t* piece_bytes;
  const int32_t* piece_server;
  const int32_t* piece_group;
  const uint8_t* piece_pulled;
  const int32_t* pull_rank;
  const int32_t* push_rank;
  const double* piece_hold_us;
};

// What came out; the arrays belong to `owner`.
struct TfschedSimResult {
  int64_t events, path, pulled_bytes, pushed_bytes, messages;
  double ring_busy_us, window_begin_us, window_end_us, end_us;
  const double* begin_us;   // [steps + 1][workers]
  const double* finish_us;  // [steps][workers]
  const double* tensor_wait_us;
  const double* compute_busy_us;
  const double* sent_bytes;
  const double* received_bytes;
  const int32_t* event_numbers;  // [events][6]: kind, what, worker, step, ready_event, busy_event
  const double* event_times_us;  // [events][3]: ready, start, end
  const int32_t* path_events;
  void* owner;
};

// Simulates `count` jobs at the same time. nullptr, or why not, in words that hold until the thread's next call. On success
// each of the `count` results has to be freed.
TFSCHED_SIM_EXPORT const char* tfsched_sim_run_jobs(const TfschedSimModel* models, int32_t count, TfschedSimResult* results);
TFSCHED_SIM_EXPORT void tfsched_sim_free(TfschedSimResult* result);

// The names of the core's policies, separated by spaces.
TFSCHED_SIM_EXPORT const char* tfsched_sim_policies();

}  // extern "C"

#endif  // TFSCHED_CC_SIMULATOR_CAPI_H_
