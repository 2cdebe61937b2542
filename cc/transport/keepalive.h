// Finds connections of which only this end is left.
#ifndef TFSCHED_CC_TRANSPORT_KEEPALIVE_H_
#define TFSCHED_CC_TRANSPORT_KEEPALIVE_H_

#include <string>

namespace tfsched {

// gRPC lets the kernel give a server's connection up when what was sent over it stays unconfirmed (TCP_USER_TIMEOUT). The
// kernel does not tell the other end, and a network that is cut could not carry the news. The other end then waits for an
// answer that cannot come, for ever if it has nothing to send itself. So the kernel of this end asks the peer now and then
// (SO_KEEPALIVE) on every connection that this process makes to `address`, "HOST:PORT": a peer that no longer knows the
// connection refuses, and calls that are waiting fail as they do when a task is lost. A peer that cannot be reached has the
// time that TCP gives it elsewhere, about a quarter of an hour, unless it is a member of a group (below).
//
// gRPC hands no socket out and TensorFlow passes no option on, so a thread looks for them every few seconds. Seconds
// between two questions come from TFSCHED_KEEPALIVE_S; 0 means none. Does nothing where the system is not Linux.
void KeepAlive(const std::string& address);

// At `address` is another member of a group of collectives, without which no step ends: connections to it are given up, and
// what waits at them fails, once its kernel has answered nothing for 8 s. A process that stands still answers: its kernel
// does so. TensorFlow's coordination service takes the member for lost after 10 s without a heartbeat, but names no reason.
void GiveUpSilent(const std::string& address);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_KEEPALIVE_H_
