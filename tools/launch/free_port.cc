#include "tools/launch/free_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/address.h"

namespace evenshard {
namespace {

// Returns a socket that is bound to a port of `host`. If `port` is "0", any free port is taken.
absl::StatusOr<int> BindPort(absl::string_view host, const std::string& port) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found)) {
    return absl::InvalidArgumentError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;  // a port in TIME_WAIT counts as free
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) != 0 ||
      bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
    const char* problem = strerror(errno);
    if (fd >= 0) close(fd);
    return absl::InvalidArgumentError(problem);
  }
  return fd;
}

// Accepts a socket file that nobody listens on, because an earlier run may have left it.
absl::Status CheckNobodyListens(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError("the path is too long for a socket");
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool answered =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return answered ? absl::InvalidArgumentError(strerror(EADDRINUSE)) : absl::OkStatus();
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
  std::vector<int> sockets;  // stay open until the end, so that all ports differ
  const absl::Cleanup close_sockets = [&] {
    for (const int fd : sockets) close(fd);
  };
  std::vector<std::string> overrides;
  for (const auto& [field, address, each] : ListenAddresses(config.proto())) {
    absl::Status unusable;
    if (absl::StartsWith(address, "unix:")) {
      unusable = CheckNobodyListens(address.substr(5));
    } else {
      const size_t colon = address.rfind(':');
      const std::string host = address.substr(0, colon);
      const std::string port = address.substr(colon + 1);
      const absl::StatusOr<int> fd = BindPort(host, port);
      unusable = fd.status();
      if (fd.ok()) sockets.push_back(*fd);
      if (fd.ok() && port == "0") {
        overrides.push_back(absl::StrCat(field, "=", host, ":", Port(*fd)));
      }
    }
    if (!unusable.ok()) {
      return config.FieldError(
          field, absl::StrCat("is \"", address, "\", where this machine cannot listen: ",
                              unusable.message(), ", allowed: a free address of this machine"));
    }
  }
  return overrides;
}

}  // namespace evenshard
