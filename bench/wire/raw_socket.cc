#include "bench/wire/raw_socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

union SocketAddress {
  sockaddr any;
  sockaddr_in inet;
  sockaddr_un local;
};

absl::StatusOr<SocketAddress> ParseAddress(const std::string& address) {
  SocketAddress parsed = {};
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:") && path.size() < sizeof(parsed.local.sun_path)) {
    parsed.local.sun_family = AF_UNIX;
    std::memcpy(parsed.local.sun_path, path.data(), path.size());
    return parsed;
  }
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != std::string::npos && absl::SimpleAtoi(address.substr(colon + 1), &port) &&
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.inet.sin_addr) == 1) {
    parsed.inet.sin_family = AF_INET;
    parsed.inet.sin_port = htons(static_cast<uint16_t>(port));
    return parsed;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", address, "\" is not \"IPV4:PORT\" or \"unix:PATH\""));
}

socklen_t SizeOf(const SocketAddress& address) {
  return address.any.sa_family == AF_UNIX ? sizeof(address.local) : sizeof(address.inet);
}

// Sets the options of a socket. TCP agrees on its window when it connects, so this comes first.
void SetOptions(int fd, int family, int buffer_bytes) {
  const int on = 1;
  if (family == AF_INET) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (buffer_bytes == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
}

}  // namespace

absl::StatusOr<RawSocket> RawSocket::Listen(const std::string& address, int buffer_bytes) {
  ASSIGN_OR_RETURN(const SocketAddress parsed, ParseAddress(address));
  const int family = parsed.any.sa_family;
  RawSocket listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), buffer_bytes);
  SetOptions(listener.fd_, family, buffer_bytes);
  // Remove the socket file of an earlier listener.
  if (family == AF_UNIX) unlink(parsed.local.sun_path);
  if (bind(listener.fd_, &parsed.any, SizeOf(parsed)) != 0 ||
      listen(listener.fd_, SOMAXCONN) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", address));
  }
  return listener;
}

absl::StatusOr<RawSocket> RawSocket::Connect(const std::string& address, int buffer_bytes) {
  ASSIGN_OR_RETURN(const SocketAddress parsed, ParseAddress(address));
  const int family = parsed.any.sa_family;
  RawSocket connection(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), buffer_bytes);
  SetOptions(connection.fd_, family, buffer_bytes);
  if (connect(connection.fd_, &parsed.any, SizeOf(parsed)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot connect to ", address));
  }
  return connection;
}

RawSocket::~RawSocket() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<RawSocket> RawSocket::Accept() const {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  RawSocket connection(accept4(fd_, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC),
                       buffer_bytes_);
  if (connection.fd_ < 0) return absl::ErrnoToStatus(errno, "accept");
  SetOptions(connection.fd_, peer.ss_family, buffer_bytes_);  // unix sockets do not inherit them
  return connection;
}

absl::StatusOr<std::string> RawSocket::BoundAddress(const std::string& address) const {
  SocketAddress bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd_, &bound.any, &size) != 0) return absl::ErrnoToStatus(errno, "getsockname");
  if (bound.any.sa_family != AF_INET) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", ntohs(bound.inet.sin_port));
}

absl::Status RawSocket::Send(const RawHeader& header, const float* floats) const {
  iovec pieces[2] = {{const_cast<RawHeader*>(&header), sizeof(header)},
                     {const_cast<float*>(floats), header.bytes}};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  while (message.msg_iovlen > 0) {
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return absl::ErrnoToStatus(errno, "send");
    size_t left = static_cast<size_t>(sent);
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen == 0) break;
    message.msg_iov->iov_base = static_cast<char*>(message.msg_iov->iov_base) + left;
    message.msg_iov->iov_len -= left;
  }
  return absl::OkStatus();
}

absl::Status RawSocket::Receive(void* into, size_t bytes) const {
  char* next = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t received = recv(fd_, next, bytes, MSG_WAITALL);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return absl::ErrnoToStatus(errno, "receive");
    if (received == 0) return absl::UnavailableError("the peer has closed the connection");
    next += received;
    bytes -= static_cast<size_t>(received);
  }
  return absl::OkStatus();
}

void RawSocket::Shutdown() const { shutdown(fd_, SHUT_RDWR); }

}  // namespace evenshard
