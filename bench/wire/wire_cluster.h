#ifndef EVENSHARD_BENCH_WIRE_WIRE_CLUSTER_H_
#define EVENSHARD_BENCH_WIRE_WIRE_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/wire/wire_process.h"
#include "proto/encoding.pb.h"

namespace evenshard {

inline constexpr char kPsSystem[] = "ps";
inline constexpr char kRawSystem[] = "raw";

// A system and a layout of its processes, which are measured together.
struct WireLayout {
  std::string system = kPsSystem;
  std::string model;      // ModelSpec, text format
  std::string transport;  // "tcp", "unix", or "shared" for headers by TCP and data in shared memory
  int workers = 1;
  int shards = 1;
  std::vector<std::string> limits;  // fields of the config's `limits`, as in "connections: 4"
  Encoding encoding = FLOAT32;      // in both directions; ps only
  int socket_buffer_bytes = 0;      // raw only
  std::string log_level = "warning";
};

// Returns the layout's ClusterConfig in text format. Each shard has a socket in `folder` or port 0.
std::string WireConfig(const WireLayout& layout, const std::string& folder);

// The cost of a number of consecutive iterations.
struct WireWindow {
  double seconds = 0;      // from the first worker's start to the last one's end
  double cpu_seconds = 0;  // user and system, of all processes together
};

struct WireLatency {
  double p50_seconds = 0, p99_seconds = 0;            // one push-pull
  double call_p50_seconds = 0, call_p99_seconds = 0;  // one empty unary call
};

// Resident memory in bytes. Each figure is the largest of all shards or all workers.
struct WireMemory {
  int64_t shard = 0;
  int64_t worker = 0;    // without the two buffers for gradients and parameters
  int64_t exchange = 0;  // the growth of a worker since just before it connected
};

// The running processes of one system, which the destructor ends. Used by one thread. All methods
// return the errors of WireProcess::Expect.
class WireCluster {
 public:
  // Starts all processes and returns when every worker is connected. Unix sockets are made in
  // `folder`.
  static absl::StatusOr<std::unique_ptr<WireCluster>> Start(const WireLayout& layout,
                                                            const std::string& folder,
                                                            const Interrupts* interrupts);

  // Has all workers do `iterations` push-pulls at the same time.
  absl::StatusOr<WireWindow> Run(int iterations);
  // Has every worker check its parameters against what the iterations so far must give.
  absl::Status Verify();
  // Has the worker of rank 0 time `count` push-pulls and as many empty calls to shard 0.
  // REQUIRES: one worker and one shard.
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
  std::vector<int64_t> resident_before_;  // by rank, with both buffers and before connecting
  int64_t buffers_bytes_ = 0;             // size of a worker's gradients and parameters
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_WIRE_CLUSTER_H_
