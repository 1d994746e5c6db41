#ifndef PS_COMMON_NET_UNIX_SOCKET_H_
#define PS_COMMON_NET_UNIX_SOCKET_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Stream sockets for "unix:PATH" addresses. Made here, and not by gRPC, because what the kernel
// lets a sender have under way by default, 208 KiB, is too little for bulk data.

namespace ps {

// PATH of "unix:PATH"; nothing for another address.
std::optional<std::string> UnixPath(absl::string_view address);

// A listening socket, and the file by which others find it. Owns both: its end removes the file
// and closes the socket. Thread-safe.
class UnixListeningSocket {
 public:
  // Takes the place of a socket that a listener left behind, and of nothing else. Of several
  // that listen on one path at the same time, one succeeds.
  // Errors: UNAVAILABLE where another process listens there; FAILED_PRECONDITION where something
  // other than a stream socket lies there; the system's.
  static absl::StatusOr<UnixListeningSocket> Listen(const std::string& path);

  UnixListeningSocket(UnixListeningSocket&& other) noexcept;
  UnixListeningSocket& operator=(UnixListeningSocket&&) = delete;
  ~UnixListeningSocket();

  int fd() const { return fd_; }

  // The next connection, non-blocking. Errors: CANCELLED after Stop.
  absl::StatusOr<int> Accept() const;

  // Removes the file, unless another one lies there by now, and ends Accept. Idempotent.
  void Stop() const;

 private:
  UnixListeningSocket(std::string path, int fd, dev_t device, ino_t inode)
      : path_(std::move(path)), fd_(fd), device_(device), inode_(inode) {}

  const std::string path_;
  int fd_;  // -1 when moved from
  // Of the file. No other file gets them while the socket is open.
  const dev_t device_;
  const ino_t inode_;
};

// A connection, as gRPC wants it: non-blocking. Errors: the system's.
absl::StatusOr<int> ConnectUnix(const std::string& path);

}  // namespace ps

#endif  // PS_COMMON_NET_UNIX_SOCKET_H_
