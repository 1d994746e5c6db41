#ifndef EVENSHARD_BENCH_WIRE_RAW_SOCKET_H_
#define EVENSHARD_BENCH_WIRE_RAW_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Plain blocking stream sockets, the baseline with which the wire benchmark compares the exchange.

namespace evenshard {

// Precedes the floats of a chunk in both directions.
struct RawHeader {
  uint32_t chunk = 0;
  uint32_t bytes = 0;
};

// A connected or listening socket, which the destructor closes. Move-only. One thread may send
// while another receives.
class RawSocket {
 public:
  // An address is "IPV4:PORT", where port 0 stands for any free port, or "unix:PATH".
  // `buffer_bytes` is the size of the kernel's buffers for each connection in each direction; 0
  // leaves it to the kernel. Errors: INVALID_ARGUMENT for any other address; the system's.
  static absl::StatusOr<RawSocket> Listen(const std::string& address, int buffer_bytes);
  static absl::StatusOr<RawSocket> Connect(const std::string& address, int buffer_bytes);

  RawSocket() = default;
  RawSocket(RawSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), buffer_bytes_(other.buffer_bytes_) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(buffer_bytes_, other.buffer_bytes_);
    return *this;
  }
  ~RawSocket();

  // Blocks until the next connection. REQUIRES: the socket is listening.
  absl::StatusOr<RawSocket> Accept() const;
  // Returns the address to connect to, given the one that was listened on, whose port may be 0.
  // REQUIRES: the socket is listening.
  absl::StatusOr<std::string> BoundAddress(const std::string& address) const;

  // Sends a chunk without copying it first. Blocks until the kernel has accepted all of it.
  absl::Status Send(const RawHeader& header, const float* floats) const;
  // Blocks until `bytes` have been received. Errors: UNAVAILABLE at the end of the stream.
  absl::Status Receive(void* into, size_t bytes) const;

  // Makes calls in progress, and all later ones, fail. May be called from any thread.
  void Shutdown() const;

 private:
  RawSocket(int fd, int buffer_bytes) : fd_(fd), buffer_bytes_(buffer_bytes) {}

  int fd_ = -1;
  int buffer_bytes_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_RAW_SOCKET_H_
