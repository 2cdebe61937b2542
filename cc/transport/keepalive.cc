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
#include <map>
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
// Of a connection to a member of a group, in seconds: of silence until the first question and between questions, and until
// the connection is given up, whether the kernel asks or what was sent is unconfirmed.
constexpr int kMemberAskS = 2;
constexpr int kMemberGivenUpS = 8;

struct PeerPorts {
  Mutex mu;
  std::map<int, bool> ports TFSCHED_GUARDED_BY(mu);  // port -> whether a member of a group listens there
};

PeerPorts& ProcessPeerPorts() {
  static PerProcess<PeerPorts> ports;
  return ports.Get();
}

std::map<int, bool> PortsNow() {
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

int Get(int fd, int level, int option) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, option, &value, &size) == 0 ? value : 0;
}

void Set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

void Ask(int fd, int seconds, bool member) {
  if (member) seconds = std::min(seconds, kMemberAskS);
  if (Get(fd, SOL_SOCKET, SO_KEEPALIVE) == 0 || Get(fd, IPPROTO_TCP, TCP_KEEPIDLE) > seconds) {
    Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
    Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  }
  // Holds in place of the number of questions, too.
  if (member) Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kMemberGivenUpS * 1000);
}

void Look(int seconds) {
  const std::map<int, bool> ports = PortsNow();
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const auto fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (*end != '\0') continue;
    if (const auto found = ports.find(PeerPort(fd)); found != ports.end()) Ask(fd, seconds, found->second);
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

void Watch(const std::string& address, bool member) {
  static const int seconds = KeepAliveSeconds();
  const int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  if (seconds <= 0 || port <= 0) return;
  {
    PeerPorts& peers = ProcessPeerPorts();
    const MutexLock lock(&peers.mu);
    peers.ports[port] |= member;
  }
  static PerProcess<Looking> looking;
  looking.Get([] { return new Looking(seconds); });
  if (member) Look(seconds);  // a group's members are connected by now
}

}  // namespace

void KeepAlive(const std::string& address) { Watch(address, false); }

void GiveUpSilent(const std::string& address) { Watch(address, true); }

#else

void KeepAlive(const std::string&) {}

void GiveUpSilent(const std::string&) {}

#endif

}  // namespace tfsched
