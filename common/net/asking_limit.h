#ifndef EVENSHARD_COMMON_NET_ASKING_LIMIT_H_
#define EVENSHARD_COMMON_NET_ASKING_LIMIT_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/config.pb.h"

namespace evenshard {

// How much more a connection has sent than somebody who only asks, in bytes: than requests, and
// HTTP/2's word for what it has read. gRPC bounds neither what headers, pings or calls that are
// taken back cost it on a connection, nor the memory for them. A leaky bucket
// (limits.strangers.asking_bytes_per_second). Thread-compatible.
class AskingLimit {
 public:
  // For so many bytes that it has read, a connection may send one more.
  static constexpr double kReadBytesPerByte = 64;

  AskingLimit(const Strangers& limits, absl::Time now)
      : bytes_per_second_(limits.asking_bytes_per_second()), last_(now) {}

  // `received` and `acknowledged` are all bytes so far that the peer has sent, and taken.
  double Level(uint64_t received, uint64_t acknowledged, absl::Time now) {
    const double drained = bytes_per_second_ * absl::ToDoubleSeconds(now - last_) +
                           static_cast<double>(acknowledged - acknowledged_) / kReadBytesPerByte;
    level_ = std::max(level_ - drained, 0.0) + static_cast<double>(received - received_);
    last_ = now;
    received_ = received;
    acknowledged_ = acknowledged;
    return level_;
  }

 private:
  const double bytes_per_second_;
  absl::Time last_;
  uint64_t received_ = 0;
  uint64_t acknowledged_ = 0;
  double level_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_ASKING_LIMIT_H_
