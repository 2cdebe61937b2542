// The one dispatcher of a process, and its state as JSON.
#ifndef TFSCHED_CC_TRANSPORT_RUNTIME_H_
#define TFSCHED_CC_TRANSPORT_RUNTIME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cc/collective/algorithm.h"
#include "cc/core/dispatcher.h"
#include "cc/core/step_times.h"

namespace tfsched {

// Created at first use, never destroyed: gRPC's threads may release buffers until the very end of the process. Reads the
// environment: TFSCHED_GRACE_US, TFSCHED_QUICK_US, TFSCHED_TRACE_CAPACITY, TFSCHED_EMULATED_BPS (see docs/configuration.md).
Dispatcher& ProcessDispatcher();

// Likewise: the steps of this process.
StepTimes& ProcessStepTimes();

// How many variables the last training graph that was prepared here updates across the barrier.
void SetCrossingVariables(int64_t count);

// How much a connection of this process's servers may have accepted and not yet sent, from TFSCHED_SEND_BACKLOG_BYTES; 0: as
// much as the system likes.
int64_t SendBacklogBytes();

// The code point that packets of this process's servers are marked with, from TFSCHED_DSCP; 0: none. See send_backlog.h.
int Dscp();

// How long an idle connection to another task goes unquestioned, from TFSCHED_KEEPALIVE_S; 0: for ever. See keepalive.h.
int KeepAliveSeconds();

// How much this process may hold for crossing the barrier, besides a quarter of the variables that are updated in it, from
// TFSCHED_SERVER_MEMORY_BYTES.
int64_t ServerMemoryBytes();

// The way in which all tensors are exchanged, from TFSCHED_ALL_REDUCE; nothing for "auto".
std::optional<Way> WantedWay();

// {"tasks": 1, ...}; keys as in Counters, what the process runs with, and what crosses the barrier (barrier.h).
std::string StatsJson();

// Changes the process's scheduler. What is "", -2 (bytes) and -1 (rate) stays as it is; kGraphPolicy and kGraphCredit go
// back to the tags. False, and nothing is changed, if no policy has that name.
bool Configure(const std::string& policy, int64_t credit_bytes, int64_t rate_bps);

// ["fifo", ...], the policies of this library.
std::string PoliciesJson();

// [{"name": .., "from": .., "to": .., "step_id": .., "bytes": .., "rank": .., "requested_us": .., ...}, ...], oldest first.
std::string TraceJson();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_RUNTIME_H_
