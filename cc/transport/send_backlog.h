// Options of the connections that a server accepts: what they may keep unsent, and a mark for the network.
#ifndef TFSCHED_CC_TRANSPORT_SEND_BACKLOG_H_
#define TFSCHED_CC_TRANSPORT_SEND_BACKLOG_H_

#include <cstdint>

namespace tfsched {

// A TCP socket accepts some megabytes ahead of what it sends. What is in there is out of any order's reach: a more urgent
// tensor, and every small message between two tasks, waits until it has left. So connections accepted from now on at `port`
// take no more while `bytes` are unsent. Set on this process's sockets that listen there, from which accepted ones inherit.
// Returns how many those are; 0 where the system has no such option. To be called once the server listens.
int LimitSendBacklog(int port, int64_t bytes);

// Gives all packets that such connections send a differentiated services code point (RFC 2474), 0 to 63, by which hosts and
// switches that are told to can send one training's tensors before another's. Returns as above.
int MarkSent(int port, int dscp);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_SEND_BACKLOG_H_
