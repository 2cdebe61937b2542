// The thread that looks for this process's connections to other tasks; see keepalive.h.
#include "cc/transport/keepalive.h"

#include <cstdlib>

#if defined(__linux__)
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "cc/core/mutex.h"
#include "cc/core/per_process.h"
#include "cc/core/thread_annotations.h"
#include "cc/transport/runtime.h"
#endif

namespace tfsched {

#if defined(__linux__)

namespace {

// The most that the kernel accepts. Questions without an answer prove nothing but a slow network; a refusal needs one.
constexpr int kQuestions = 127;
constexpr auto kBetweenLooks = std::chrono::seconds(5);

struct PeerPorts {
  Mutex mu;
  std::set<int> ports TFSCHED_GUARDED_BY(mu);
};

PeerPorts& ProcessPeerPorts() {
  static PerProcess<PeerPorts> ports;
  return ports.Get();
}

std::set<int> PortsNow() {
  PeerPorts& peers = ProcessPeerPorts();
  const MutexLock lock(&peers.mu);
  return peers.ports;
}

// The port at the other end of a TCP connection; 0 if `fd` is none.
int PeerPort(int fd) {
  int kind = 0;
  socklen_t size = sizeof(kind);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || kind != SOCK_STREAM) return 0;
  sockaddr_storage peer = {};
  size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return 0;
  if (peer.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&peer)->sin_port);
  if (peer.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&peer)->sin6_port);
  return 0;
}

void Ask(int fd, int seconds) {
  int asks = 0;
  socklen_t size = sizeof(asks);
  if (getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &asks, &size) != 0 || asks != 0) return;
  const int on = 1;
  const int most = kQuestions;
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof(most));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

void Look(int seconds) {
  const std::set<int> ports = PortsNow();
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const auto fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (*end == '\0' && ports.count(PeerPort(fd)) > 0) Ask(fd, seconds);
  }
  closedir(directory);
}

// Looks until the process ends: gRPC connects again whenever a connection was lost.
struct Looking {
  explicit Looking(int seconds) {
    std::thread([seconds] {
      for (;;) {
        std::this_thread::sleep_for(kBetweenLooks);
        Look(seconds);
      }
    }).detach();
  }
};

}  // namespace

void KeepAlive(const std::string& address) {
  static const int seconds = KeepAliveSeconds();
  const int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  if (seconds <= 0 || port <= 0) return;
  {
    PeerPorts& peers = ProcessPeerPorts();
    const MutexLock lock(&peers.mu);
    peers.ports.insert(port);
  }
  static PerProcess<Looking> looking;
  looking.Get([] { return new Looking(seconds); });
}

#else

void KeepAlive(const std::string&) {}

#endif

}  // namespace tfsched
