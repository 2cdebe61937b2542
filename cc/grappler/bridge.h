// The C functions that Python calls through ctypes.
#ifndef TFSCHED_CC_GRAPPLER_BRIDGE_H_
#define TFSCHED_CC_GRAPPLER_BRIDGE_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// The pass. `request` is a serialised MetaGraphDef (see bridge.cc). Returns 1 after giving the rewritten GraphDef to
// tfsched_put(sink, ...), 0 to leave the graph as it is. May be called from any thread, several at a time.
typedef int (*tfsched_pass_fn)(const char* request, size_t size, void* sink);

// Installs the pass for this process; nullptr removes it.
void tfsched_set_pass(tfsched_pass_fn pass);
void tfsched_put(void* sink, const char* data, size_t size);

// How many bits per second come to this process from the slowest of the tasks that its first training graph uses
// (link_probe.h); 0 if that is not known. Measured while the pass works on that graph, for up to a second.
int64_t tfsched_link_bps();

// How many bits per second leave the slowest of this process's servers, as far as they have sent enough; 0: none has.
int64_t tfsched_pace_bps();

// Keeps a graph of the pass for the trace `key`; `id` tells graphs of one trace apart (op_recording.h).
void tfsched_keep_graph(const char* key, const char* id, const char* data, size_t size);

// Hands this process's counters (what = 0), its transfer trace (1) or its policies' names (2) to `take` as JSON.
typedef void (*tfsched_take_fn)(const char* json, size_t size, void* context);
void tfsched_read(int what, tfsched_take_fn take, void* context);
void tfsched_clear_trace();

// Blocks until this process has no background update running, for at most `timeout_ms`; returns how many still run.
int64_t tfsched_drain(int64_t timeout_ms);
// Ends this process after `timeout_ms` with exit code 1, and says `sentence` on standard error: for what TensorFlow waits
// for with Python's lock held, and cannot be stopped waiting for. A later call takes the place of an earlier one; 0 lifts
// the limit.
void tfsched_limit_process(int64_t timeout_ms, const char* sentence);
// Changes this process's scheduler as the op TfschedConfigure does; 0, and nothing is changed, if the policy is unknown.
int tfsched_configure(const char* policy, int64_t credit_bytes, int64_t rate_bps);
// Of how many bytes the pieces of all-reduces are at most, for all members, from the next call on (all_reduce.h); 0: as the
// graphs say.
void tfsched_set_piece_bytes(int64_t bytes);
// What the counters tell of the last training graph: how many variables it updates across the barrier.
void tfsched_set_crossing_variables(int64_t count);
}

#endif  // TFSCHED_CC_GRAPPLER_BRIDGE_H_
