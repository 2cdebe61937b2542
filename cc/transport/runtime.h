// The one dispatcher of a process, and its state as JSON.
#ifndef TFSCHED_CC_TRANSPORT_RUNTIME_H_
#define TFSCHED_CC_TRANSPORT_RUNTIME_H_

#include <string>

#include "cc/core/dispatcher.h"

namespace tfsched {

// Created at first use, never destroyed: gRPC's threads may release buffers until the very end of the process. Reads the
// environment: TFSCHED_GRACE_US, TFSCHED_TRACE_CAPACITY, TFSCHED_EMULATED_BPS (see docs/configuration.md).
Dispatcher& ProcessDispatcher();

// {"tasks": 1, ...}; keys as in Counters, what the process runs with, and what crosses the barrier (barrier.h).
std::string StatsJson();

// [{"name": .., "from": .., "to": .., "step_id": .., "bytes": .., "rank": .., "requested_us": .., ...}, ...], oldest first.
std::string TraceJson();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_RUNTIME_H_
