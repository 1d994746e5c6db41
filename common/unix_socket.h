#ifndef PS_COMMON_UNIX_SOCKET_H_
#define PS_COMMON_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

// Stream sockets for "unix:PATH" addresses. Made here, and not by gRPC, because what the kernel
// lets a sender have under way by default, 208 KiB, is too little for bulk data.

namespace ps {

// PATH of "unix:PATH"; nothing for another address.
absl::optional<std::string> UnixPath(absl::string_view address);

// A listening socket. Takes the place of a file that a listener left behind.
// Errors: UNAVAILABLE where another process listens there; the system's.
absl::StatusOr<int> ListenUnix(const std::string& path);

// The next connection, non-blocking. Errors: CANCELLED when the listener was shut down.
absl::StatusOr<int> AcceptUnix(int listener);

// A connection, as gRPC wants it: non-blocking. Errors: the system's.
absl::StatusOr<int> ConnectUnix(const std::string& path);

}  // namespace ps

#endif  // PS_COMMON_UNIX_SOCKET_H_
