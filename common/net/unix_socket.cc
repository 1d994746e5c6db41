#include "common/net/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/security/refusal_log.h"

namespace evenshard {
namespace {

// Close to the default chunk size. The kernel may allow less (net.core.wmem_max).
constexpr int kSendBufferBytes = 512 << 10;

constexpr absl::Duration kAcceptPause = absl::Milliseconds(10);

// How long a connection waits for room in the queue of a listener that takes none.
constexpr timeval kLongestQueue = {.tv_sec = 1, .tv_usec = 0};

// A listener holds the lock for microseconds, so a holder that keeps it longer is another program.
constexpr absl::Duration kLongestLock = absl::Seconds(5);
constexpr absl::Duration kLockPause = absl::Milliseconds(1);

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

// The sender's buffer limits how much data a unix socket can have in flight.
void PrepareConnection(int fd) {
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Whether the process at the other end is of this one's user, or of root, which may do everything
// to both anyway.
absl::Status CheckUser(int fd, const std::string& path) {
  ucred peer;
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError(errno, "SO_PEERCRED of", path);
  }
  if (peer.uid == geteuid() || peer.uid == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the process ", peer.pid, " at ", path,
                                                  " is of user ", peer.uid, ", allowed: user ",
                                                  geteuid(), " or root"));
}

const sockaddr* AsAny(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Locks the folder of `path`, so that one listener at a time examines and changes it. Otherwise
// another listener could replace a socket between the moment at which it is found stale and its
// removal. Returns a file descriptor; closing it releases the lock, and no lock file is left
// behind.
absl::StatusOr<int> LockFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(errno, "open the folder of", path);
  for (absl::Duration waited; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += kLockPause) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || waited >= kLongestLock) {
      const absl::Status failed = SystemError(errno, "lock (flock) the folder of", path);
      close(fd);
      return failed;
    }
    absl::SleepFor(kLockPause);
  }
  return fd;
}

// Describes a file that is not a socket.
const char* KindOf(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "a regular file";
    case S_IFDIR:
      return "a directory";
    case S_IFLNK:
      return "a symbolic link";
    default:
      return "a device or pipe";
  }
}

// Removes a socket at `path` that refuses connections, because its listener is gone. Returns OK if
// nothing is at `path` afterwards. REQUIRES: the folder is locked.
absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) {
    return errno == ENOENT ? absl::OkStatus() : SystemError(errno, "examine", path);
  }
  if (!S_ISSOCK(file.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is ", KindOf(file.st_mode), "; only a socket without a listener is replaced"));
  }
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return SystemError(errno, "socket", path);
  const int connected = connect(probe, AsAny(address), sizeof(address));
  const int error = errno;
  close(probe);
  // EAGAIN means that the listener's queue of connections is full.
  if (connected == 0 || error == EAGAIN) {
    return absl::UnavailableError(absl::StrCat("another process listens on ", path));
  }
  if (error != ECONNREFUSED) return SystemError(error, "connect to the socket at", path);
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : SystemError(errno, "remove", path);
}

}  // namespace

std::optional<std::string> UnixPath(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return std::nullopt;
  return std::string(address);
}

absl::StatusOr<UnixListeningSocket> UnixListeningSocket::Listen(const std::string& path) {
  sockaddr_un address;
  ASSIGN_OR_RETURN(const int fd, MakeSocket(path, &address));
  absl::Cleanup close_fd = [fd] { close(fd); };
  ASSIGN_OR_RETURN(const int lock, LockFolderOf(path));
  const absl::Cleanup unlock = [lock] { close(lock); };

  RETURN_IF_ERROR(RemoveStale(path, address));
  if (bind(fd, AsAny(address), sizeof(address)) != 0) return SystemError(errno, "listen on", path);
  struct stat file;
  // Nobody can connect before listen.
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || lstat(path.c_str(), &file) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    const absl::Status failed = SystemError(errno, "listen on", path);
    unlink(path.c_str());
    return failed;
  }
  std::move(close_fd).Cancel();
  return UnixListeningSocket(path, fd, file.st_dev, file.st_ino);
}

UnixListeningSocket::UnixListeningSocket(UnixListeningSocket&& other) noexcept
    : path_(other.path_),
      fd_(std::exchange(other.fd_, -1)),
      device_(other.device_),
      inode_(other.inode_) {}

UnixListeningSocket::~UnixListeningSocket() {
  if (fd_ < 0) return;
  Stop();
  close(fd_);
}

void UnixListeningSocket::Stop() const {
  // The file is removed first, because no other process takes the path while the socket listens.
  struct stat file;
  if (lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_) {
    unlink(path_.c_str());
  }
  stopped_ = true;
  shutdown(fd_, SHUT_RDWR);
}

absl::StatusOr<int> UnixListeningSocket::Accept() const {
  while (true) {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      const absl::Status allowed = CheckUser(fd, path_);
      if (!allowed.ok()) {
        close(fd);
        LogRefusal(allowed.message());
        continue;
      }
      PrepareConnection(fd);
      return fd;
    }
    // A lack of descriptors is said even of a socket that was shut down.
    if (errno == EINVAL || stopped_) return absl::CancelledError("the listener was stopped");
    // Other errors concern one connection, or are temporary, like a lack of descriptors or memory.
    if (errno != EINTR && errno != ECONNABORTED) absl::SleepFor(kAcceptPause);
  }
}

absl::Status CheckUnixPeer(absl::string_view address) {
  const std::optional<std::string> path = UnixPath(address);
  if (!path.has_value()) return absl::OkStatus();
  const absl::StatusOr<int> fd = ConnectUnix(*path);
  if (fd.ok()) close(*fd);
  return IsUnknownPeer(fd.status()) ? fd.status() : absl::OkStatus();
}

bool IsUnknownPeer(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsDeadlineExceeded(status);
}

absl::StatusOr<int> ConnectUnix(const std::string& path) {
  sockaddr_un address;
  ASSIGN_OR_RETURN(const int fd, MakeSocket(path, &address));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kLongestQueue, sizeof(kLongestQueue));
  if (connect(fd, AsAny(address), sizeof(address)) != 0) {
    const absl::Status failed =
        errno == EAGAIN
            ? absl::DeadlineExceededError(absl::StrCat("the process that listens on ", path,
                                                       " takes no connection, its queue is full"))
            : SystemError(errno, "connect to", path);
    close(fd);
    return failed;
  }
  if (absl::Status allowed = CheckUser(fd, path); !allowed.ok()) {
    close(fd);
    return allowed;
  }
  PrepareConnection(fd);
  return fd;
}

}  // namespace evenshard
