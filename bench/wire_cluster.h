#ifndef PS_BENCH_WIRE_CLUSTER_H_
#define PS_BENCH_WIRE_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/wire_process.h"
#include "proto/encoding.pb.h"

namespace ps {

inline constexpr char kPsSystem[] = "ps";
inline constexpr char kRawSystem[] = "raw";

// What is measured: a system in a layout of processes.
struct WireLayout {
  std::string system = kPsSystem;
  std::string model;      // ModelSpec, text format
  std::string transport;  // "tcp", "unix" or "shared": headers by TCP, data in memory of both
  int workers = 1;
  int shards = 1;
  std::vector<std::string> limits;  // "connections: 4", for the config's limits
  Encoding encoding = FLOAT32;      // of both directions; ps only
  int socket_buffer_bytes = 0;      // raw only
};

// The layout's ClusterConfig, text format, with a socket in `folder`, or port 0, for each shard.
std::string WireConfig(const WireLayout& layout, const std::string& folder);

// What a stretch of iterations took.
struct WireWindow {
  double seconds = 0;      // from the first worker's start to the last one's end
  double cpu_seconds = 0;  // user and system, of all processes together
};

struct WireLatency {
  double p50_seconds = 0, p99_seconds = 0;            // of a push-pull
  double call_p50_seconds = 0, call_p99_seconds = 0;  // of an empty unary call
};

// In bytes, the largest process of each kind.
struct WireMemory {
  int64_t shard = 0;     // resident
  int64_t worker = 0;    // resident, beyond the two buffers
  int64_t exchange = 0;  // of a worker: what was added since before it connected
};

// The running processes of one system. Ends them when destroyed. Used by one thread.
// Errors of all methods: see WireProcess::Expect.
class WireCluster {
 public:
  // Returns when every worker is connected. `folder` is for unix sockets.
  static absl::StatusOr<std::unique_ptr<WireCluster>> Start(const WireLayout& layout,
                                                            const std::string& folder,
                                                            const Interrupts* interrupts);

  // `iterations` push-pulls of all workers at once.
  absl::StatusOr<WireWindow> Run(int iterations);
  // Has every worker compare its parameters with what the iterations so far must give.
  absl::Status Verify();
  // Of one worker and one shard.
  absl::StatusOr<WireLatency> MeasureLatency(int count);
  absl::StatusOr<WireMemory> Memory() const;

 private:
  explicit WireCluster(const WireLayout& layout) : layout_(layout) {}

  absl::StatusOr<std::unique_ptr<WireProcess>> StartProcess(const std::string& role, int index,
                                                            const std::vector<std::string>& more,
                                                            const Interrupts* interrupts) const;
  absl::StatusOr<double> CpuSeconds() const;

  const WireLayout layout_;
  std::string config_;
  std::vector<std::unique_ptr<WireProcess>> shards_;
  std::vector<std::unique_ptr<WireProcess>> workers_;
  std::vector<int64_t> resident_before_;  // by rank: with both buffers, before connecting
  int64_t buffers_bytes_ = 0;             // of a worker's gradients and parameters
};

}  // namespace ps

#endif  // PS_BENCH_WIRE_CLUSTER_H_
