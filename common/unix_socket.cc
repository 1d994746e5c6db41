#include "common/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace ps {
namespace {

// Half a chunk of the default size. The kernel may allow less (net.core.wmem_max).
constexpr int kSendBufferBytes = 512 << 10;

constexpr absl::Duration kAcceptPause = absl::Milliseconds(10);

absl::Status SystemError(int error, const char* call, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(call, " ", path));
}

absl::StatusOr<int> MakeSocket(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path ", path, " has ", path.size(),
                                                   " bytes, allowed are ",
                                                   sizeof(address->sun_path) - 1));
  }
  std::memcpy(address->sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError(errno, "socket", path);
  return fd;
}

// A sender's buffer is what a unix socket has under way.
void PrepareConnection(int fd) {
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

absl::optional<std::string> UnixPath(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return absl::nullopt;
  return std::string(address);
}

absl::StatusOr<int> ListenUnix(const std::string& path) {
  sockaddr_un address;
  const absl::StatusOr<int> made = MakeSocket(path, &address);
  if (!made.ok()) return made.status();
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  int bound = bind(*made, any, sizeof(address));
  if (bound != 0 && errno == EADDRINUSE) {
    const absl::StatusOr<int> listened_on = ConnectUnix(path);
    if (listened_on.ok()) {
      close(*listened_on);
      close(*made);
      return absl::UnavailableError(absl::StrCat("another process listens on ", path));
    }
    unlink(path.c_str());
    bound = bind(*made, any, sizeof(address));
  }
  if (bound == 0 && listen(*made, SOMAXCONN) == 0) return *made;
  const absl::Status failed = SystemError(errno, "listen on", path);
  close(*made);
  return failed;
}

absl::StatusOr<int> AcceptUnix(int listener) {
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      PrepareConnection(fd);
      return fd;
    }
    if (errno == EINVAL) return absl::CancelledError("the listener was shut down");
    // Anything else is of one connection, or passes: out of descriptors, out of memory.
    if (errno != EINTR && errno != ECONNABORTED) absl::SleepFor(kAcceptPause);
  }
}

absl::StatusOr<int> ConnectUnix(const std::string& path) {
  sockaddr_un address;
  const absl::StatusOr<int> made = MakeSocket(path, &address);
  if (!made.ok()) return made.status();
  if (connect(*made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const absl::Status failed = SystemError(errno, "connect to", path);
    close(*made);
    return failed;
  }
  PrepareConnection(*made);
  return *made;
}

}  // namespace ps
