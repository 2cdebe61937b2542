// Keeps what the kernel has accepted and not yet sent small, so that what gRPC has handed on is nearly on the wire.
#ifndef TFSCHED_CC_TRANSPORT_SEND_BACKLOG_H_
#define TFSCHED_CC_TRANSPORT_SEND_BACKLOG_H_

#include <cstdint>

namespace tfsched {

// A TCP socket accepts some megabytes ahead of what it sends. What is in there is out of any order's reach: a more urgent
// tensor, and every small message between two tasks, waits until it has left. So connections accepted from now on at `port`
// take no more while `bytes` are unsent. Set on this process's sockets that listen there, from which accepted ones inherit.
// Returns how many those are; 0 where the system has no such option. To be called once the server listens.
int LimitSendBacklog(int port, int64_t bytes);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_SEND_BACKLOG_H_
