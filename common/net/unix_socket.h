#ifndef EVENSHARD_COMMON_NET_UNIX_SOCKET_H_
#define EVENSHARD_COMMON_NET_UNIX_SOCKET_H_

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Stream sockets for "unix:PATH" addresses. They are not left to gRPC because the kernel's default
// send buffer, 208 KiB, is too small for bulk data.

namespace evenshard {

// Returns the PATH of "unix:PATH", or nullopt for any other address.
std::optional<std::string> UnixPath(absl::string_view address);

// A listening socket, and the file by which others find it. Owns both: the destructor removes the
// file and closes the socket. Thread-safe.
class UnixListeningSocket {
 public:
  // Replaces a socket that a former listener left at `path`, and nothing else. If several processes
  // call this for one path at the same time, one succeeds. Only this process's user may connect.
  // Errors: UNAVAILABLE if another process listens there; FAILED_PRECONDITION if something other
  // than a stream socket is there; the system's.
  static absl::StatusOr<UnixListeningSocket> Listen(const std::string& path);

  UnixListeningSocket(UnixListeningSocket&& other) noexcept;
  UnixListeningSocket& operator=(UnixListeningSocket&&) = delete;
  ~UnixListeningSocket();

  int fd() const { return fd_; }

  // Waits for the next connection of this process's user, or of root, and returns its file
  // descriptor, which is non-blocking. Others are closed (SO_PEERCRED of unix(7)), and logged.
  // Errors: CANCELLED after Stop.
  absl::StatusOr<int> Accept() const;

  // Removes the file, unless another one has taken its place, and makes Accept return. Idempotent.
  void Stop() const;

 private:
  UnixListeningSocket(std::string path, int fd, dev_t device, ino_t inode)
      : path_(std::move(path)), fd_(fd), device_(device), inode_(inode) {}

  const std::string path_;
  int fd_;  // -1 when moved from
  // They identify the file. No other file gets them while the socket is open.
  const dev_t device_;
  const ino_t inode_;
  mutable std::atomic<bool> stopped_{false};
};

// Whether nobody listens on `address`, or a process of this one's user or of root, where it is that
// of a unix socket. Before gRPC connects there, which does not look.
// Errors: those of IsUnknownPeer.
absl::Status CheckUnixPeer(absl::string_view address);

// Connects to `path` and returns a file descriptor that is non-blocking, as gRPC requires.
// Errors: PERMISSION_DENIED if another user than this process's, or root, listens there, and says
// who; DEADLINE_EXCEEDED if the listener's queue has had no room for a second; the system's.
absl::StatusOr<int> ConnectUnix(const std::string& path);

// Whether somebody listens who is not to be spoken to, or of whom ConnectUnix has not learnt who it
// is.
bool IsUnknownPeer(const absl::Status& status);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_UNIX_SOCKET_H_
