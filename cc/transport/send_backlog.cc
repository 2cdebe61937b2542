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
#include <vector>
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

std::vector<int> Listeners(int port) {
  std::vector<int> found;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const auto fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (*end == '\0' && ListensAt(fd, port)) found.push_back(fd);
  }
  closedir(directory);
  return found;
}

bool Set(int fd, int level, int option, int value) { return setsockopt(fd, level, option, &value, sizeof(value)) == 0; }

}  // namespace

int LimitSendBacklog(int port, int64_t bytes) {
  const int limit = static_cast<int>(std::min<int64_t>(bytes, std::numeric_limits<int>::max()));
  int found = 0;
  for (const int fd : Listeners(port)) found += Set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, limit);
  return found;
}

int MarkSent(int port, int dscp) {
  const int value = dscp << 2;  // the two bits below are ECN's
  int found = 0;
  for (const int fd : Listeners(port)) {
    // A socket of IPv6 accepts connections of IPv4 as well, which have the other option.
    const bool of_4 = Set(fd, IPPROTO_IP, IP_TOS, value), of_6 = Set(fd, IPPROTO_IPV6, IPV6_TCLASS, value);
    found += of_4 || of_6;
  }
  return found;
}

#else

int LimitSendBacklog(int, int64_t) { return 0; }

int MarkSent(int, int) { return 0; }

#endif

}  // namespace tfsched
