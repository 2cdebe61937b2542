// Finds the sockets that a server listens at: gRPC does not hand them out.
#include "cc/transport/send_backlog.h"

#include <algorithm>
#include <limits>

#if defined(__linux__)
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#endif

namespace tfsched {

#if defined(__linux__) && defined(TCP_NOTSENT_LOWAT)

namespace {

bool ListensAt(int fd, int port) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return false;
  sockaddr_storage address = {};
  size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port) == port;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port) == port;
  return false;
}

}  // namespace

int LimitSendBacklog(int port, int64_t bytes) {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  const int limit = static_cast<int>(std::min<int64_t>(bytes, std::numeric_limits<int>::max()));
  int found = 0;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const auto fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (*end != '\0' || !ListensAt(fd, port)) continue;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof(limit)) == 0) ++found;
  }
  closedir(directory);
  return found;
}

#else

int LimitSendBacklog(int, int64_t) { return 0; }

#endif

}  // namespace tfsched
