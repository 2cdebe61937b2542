// How fast bytes come here from other tasks, measured before a graph is cut: its pieces cannot change later.
#ifndef TFSCHED_CC_TRANSPORT_LINK_PROBE_H_
#define TFSCHED_CC_TRANSPORT_LINK_PROBE_H_

#include <cstdint>
#include <vector>

#include "tensorflow/core/distributed_runtime/worker_env.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/rendezvous.h"

namespace tfsched {

// Bits per second of the slowest link from one of these tasks of the same build, each named by one of its devices, to the
// server that owns `own`. An answer of 256 KiB is timed, and if that was fast, two of 4 MiB at once in its place. What is
// quick is asked twice, and the faster time counts, for what disturbs only makes slower. After a second in all those count
// that have answered. 0 if there is no server here, nobody to ask, or no answer.
//
// Measured once in a process, so that all its graphs are cut alike; later calls return the same. With no `others` nothing is
// measured.
int64_t LinkBps(const tensorflow::DeviceAttributes& own, const std::vector<tensorflow::DeviceAttributes>& others);

// Answers what another task's LinkBps asks; false, and `done` is not called, if the key is of something else.
bool AnswerProbe(const tensorflow::Rendezvous::ParsedKey& key, const tensorflow::Rendezvous::DoneCallback& done);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_LINK_PROBE_H_
