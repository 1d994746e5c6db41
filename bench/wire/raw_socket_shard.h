#ifndef EVENSHARD_BENCH_WIRE_RAW_SOCKET_SHARD_H_
#define EVENSHARD_BENCH_WIRE_RAW_SOCKET_SHARD_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "bench/wire/raw_socket.h"
#include "common/base/float_buffer.h"
#include "common/optimizer/optimizer.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// The baseline's shard. It does what Server does for a SYNC push-pull, with one blocking connection
// and two threads for each worker, and without anything else that a run needs: it has no
// membership, retries, statistics or limits. The first gradient of a chunk is received directly
// into the sum, and parameters are sent without a copy. Thread-safe.
class RawShard {
 public:
  // Starts a shard, which listens when this returns. `config` must outlive it.
  // Errors: RESOURCE_EXHAUSTED if there is not enough memory; those of RawSocket::Listen.
  static absl::StatusOr<std::unique_ptr<RawShard>> Start(const PlannedConfig* config, int shard,
                                                         int socket_buffer_bytes);
  // Shuts the connections down and joins the threads.
  ~RawShard();

  const std::string& address() const { return address_; }

 private:
  struct Connection {
    RawSocket socket;
    std::vector<float> received;  // buffer for a chunk that is not the first of its sum
    absl::Mutex mutex;
    std::deque<uint32_t> replies ABSL_GUARDED_BY(mutex);
    bool ended ABSL_GUARDED_BY(mutex) = false;
    std::thread receiver;
    std::thread sender;
  };

  // The state of the next update of one chunk.
  struct Gather {
    absl::Mutex mutex;
    bool claimed ABSL_GUARDED_BY(mutex) = false;  // a gradient is received into the sum
    int summed ABSL_GUARDED_BY(mutex) = 0;        // number of gradients in the sum
    int64_t updates ABSL_GUARDED_BY(mutex) = 0;
  };

  explicit RawShard(const PlannedConfig* config) : config_(*config) {}

  absl::Status Allocate(int shard);
  // Accepts one connection for each worker.
  void AcceptAll();
  // These threads receive gradients and send replies until the connection ends.
  void ReceiveLoop(Connection* connection);
  void SendLoop(Connection* connection);
  absl::Status ReceiveGradient(Connection* connection);

  const PlannedConfig& config_;
  std::unique_ptr<const Optimizer> optimizer_;
  FloatBuffer parameters_;
  FloatBuffer sums_;
  std::vector<Gather> gathers_;  // by chunk id
  RawSocket listener_;
  std::string address_;
  std::vector<std::unique_ptr<Connection>> connections_;  // constant once threads run
  std::thread accepter_;
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_RAW_SOCKET_SHARD_H_
