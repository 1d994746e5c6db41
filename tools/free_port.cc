#include "tools/free_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ps {
namespace {

// A socket bound to a free port of `host`.
absl::StatusOr<int> BindFreePort(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(std::string(host).c_str(), nullptr, &hints, &found)) {
    return absl::InvalidArgumentError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
    const char* problem = strerror(errno);
    if (fd >= 0) close(fd);
    return absl::InvalidArgumentError(problem);
  }
  return fd;
}

int Port(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FreePortOverrides(const Config& config) {
  constexpr absl::string_view kAnyPort = ":0";
  std::vector<int> sockets;  // kept to the end, so that all ports differ
  const absl::Cleanup close_sockets = [&] {
    for (const int fd : sockets) close(fd);
  };
  std::vector<std::string> overrides;
  for (int shard = 0; shard < config.shards(); ++shard) {
    absl::string_view host = config.address(shard);
    if (absl::StartsWith(host, "unix:") || !absl::ConsumeSuffix(&host, kAnyPort)) continue;
    const absl::StatusOr<int> fd = BindFreePort(host);
    if (!fd.ok()) {
      return config.FieldError(absl::StrCat("shard[", shard, "].address"),
                               absl::StrCat("no free port for \"", config.address(shard),
                                            "\" on this machine: ", fd.status().message()));
    }
    sockets.push_back(*fd);
    overrides.push_back(absl::StrCat("shard[", shard, "].address=", host, ":", Port(*fd)));
  }
  return overrides;
}

}  // namespace ps
