#ifndef PS_BENCH_RAW_SOCKET_H_
#define PS_BENCH_RAW_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Blocking stream sockets, as plainly as they can be had: what the wire benchmark
// compares the exchange with.

namespace ps {

// What comes before the floats of a chunk, in either direction.
struct RawHeader {
  uint32_t chunk = 0;
  uint32_t bytes = 0;
};

// A connected or listening socket; closed in the end. Move-only. One thread may send
// while another receives.
class RawSocket {
 public:
  // Addresses are "127.0.0.1:PORT" (0: any free port) or "unix:PATH". `buffer_bytes` sizes
  // the kernel's buffers of each connection in each direction; 0 leaves that to the kernel.
  // Errors: INVALID_ARGUMENT for another address; the system's.
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

  // Of a listening socket: blocks for the next connection.
  absl::StatusOr<RawSocket> Accept() const;
  // Of a listening socket: the address to connect to.
  absl::StatusOr<std::string> BoundAddress(const std::string& address) const;

  // Sends a chunk from where it lies. Blocks until the kernel has all of it.
  absl::Status Send(const RawHeader& header, const float* floats) const;
  // Blocks until `bytes` are there. Errors: UNAVAILABLE at the end of the stream.
  absl::Status Receive(void* into, size_t bytes) const;

  // Makes every call under way, and later ones, fail. From any thread.
  void Shutdown() const;

 private:
  RawSocket(int fd, int buffer_bytes) : fd_(fd), buffer_bytes_(buffer_bytes) {}

  int fd_ = -1;
  int buffer_bytes_ = 0;
};

}  // namespace ps

#endif  // PS_BENCH_RAW_SOCKET_H_
