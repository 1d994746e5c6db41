#ifndef EVENSHARD_BENCH_WIRE_RAW_SOCKET_WORKER_H_
#define EVENSHARD_BENCH_WIRE_RAW_SOCKET_WORKER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bench/wire/raw_socket.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// The baseline's worker. It does what Exchange does, with one blocking connection to each shard, on
// which one thread sends and another receives. Used by one thread.
class RawWorker {
 public:
  // Connects to all shards. `config` must outlive the worker. Errors: those of RawSocket::Connect.
  static absl::StatusOr<std::unique_ptr<RawWorker>> Connect(
      const PlannedConfig* config, const std::vector<std::string>& addresses,
      int socket_buffer_bytes);

  // Pushes every chunk of `gradients`, front layers first, and receives the updated chunks directly
  // into `parameters`. Blocks until all have arrived.
  // Errors: that of the first shard whose connection failed.
  absl::Status PushPull(absl::Span<const float> gradients, absl::Span<float> parameters);

 private:
  explicit RawWorker(const PlannedConfig* config) : config_(*config) {}

  absl::Status PushTo(int shard, absl::Span<const float> gradients) const;
  absl::Status PullFrom(int shard, absl::Span<float> parameters) const;

  const PlannedConfig& config_;
  std::vector<RawSocket> sockets_;  // by shard
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_RAW_SOCKET_WORKER_H_
