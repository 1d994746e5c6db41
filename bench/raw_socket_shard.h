#ifndef PS_BENCH_RAW_SOCKET_SHARD_H_
#define PS_BENCH_RAW_SOCKET_SHARD_H_

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
#include "bench/raw_socket.h"
#include "common/config.h"
#include "common/float_buffer.h"
#include "server/optimizer.h"

namespace ps {

// The baseline's shard: what Server does for a SYNC push-pull, with one blocking connection
// and two threads for each worker, and without anything that a run needs besides (no
// membership, no retries, no statistics, no limits). The first gradient of a chunk is
// received straight into the sum, the parameters leave from where they lie. Thread-safe.
class RawShard {
 public:
  // Listens when it returns. `config` must outlive the shard. Errors: RESOURCE_EXHAUSTED;
  // those of RawSocket::Listen.
  static absl::StatusOr<std::unique_ptr<RawShard>> Start(const Config* config, int shard,
                                                         int socket_buffer_bytes);
  // Ends the connections and joins the threads.
  ~RawShard();

  const std::string& address() const { return address_; }

 private:
  struct Connection {
    RawSocket socket;
    std::vector<float> received;  // a chunk that is not the first of its sum
    absl::Mutex mutex;
    std::deque<uint32_t> replies ABSL_GUARDED_BY(mutex);
    bool ended ABSL_GUARDED_BY(mutex) = false;
    std::thread receiver;
    std::thread sender;
  };

  // The update of one chunk that is being gathered.
  struct Gather {
    absl::Mutex mutex;
    bool claimed ABSL_GUARDED_BY(mutex) = false;  // somebody receives into the sum
    int summed ABSL_GUARDED_BY(mutex) = 0;        // gradients in the sum
    int64_t updates ABSL_GUARDED_BY(mutex) = 0;
  };

  explicit RawShard(const Config* config) : config_(*config) {}

  absl::Status Allocate(int shard);
  // Accepts one connection for each worker.
  void AcceptAll();
  // Receive gradients, and send replies, until the connection ends.
  void ReceiveLoop(Connection* connection);
  void SendLoop(Connection* connection);
  absl::Status ReceiveGradient(Connection* connection);

  const Config& config_;
  std::unique_ptr<const Optimizer> optimizer_;
  FloatBuffer parameters_;
  FloatBuffer sums_;
  std::vector<Gather> gathers_;  // by chunk id
  RawSocket listener_;
  std::string address_;
  std::vector<std::unique_ptr<Connection>> connections_;  // made before the first thread
  std::thread accepter_;
};

}  // namespace ps

#endif  // PS_BENCH_RAW_SOCKET_SHARD_H_
