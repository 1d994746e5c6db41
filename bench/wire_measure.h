#ifndef PS_BENCH_WIRE_MEASURE_H_
#define PS_BENCH_WIRE_MEASURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/wire_cluster.h"

namespace ps {

// What to measure, from the command line.
struct WireOptions {
  std::string model = "vgg16";
  std::vector<int> workers;
  std::vector<int> shards;
  std::vector<std::string> transports;
  std::vector<std::string> limits;  // of this system: fields of the config's `limits`
  Encoding encoding = FLOAT32;      // of this system; the raw baseline's is always FLOAT32
  int repeat = 5;                   // windows of each system
  double window_seconds = 1;        // at least so long, and at least one iteration
  int latency_count = 1000;
  // What is tried for the raw baseline, in every combination. 0: the kernel sizes its buffers.
  std::vector<int64_t> raw_chunk_bytes = {256 << 10, 1 << 20, 4 << 20};
  std::vector<int> raw_socket_buffer_bytes = {0, 1 << 20};
};

// One layout, both systems; a sample per window.
struct GoodputSamples {
  std::vector<double> goodput;     // bytes of gradient in and of parameters out, per second
  std::vector<double> cpu_per_gb;  // CPU seconds per 10^9 bytes moved
  std::vector<double> iteration_seconds;
  int64_t bytes_per_iteration = 0;  // moved by all workers, both directions, as encoded
  WireMemory memory;
};
struct GoodputResult {
  WireLayout layout;
  GoodputSamples ps;
  GoodputSamples raw;
  // Of the raw baseline: the fastest of what was tried.
  int64_t raw_chunk_bytes = 0;
  int raw_socket_buffer_bytes = 0;
  // What a shard must have: the largest one's parameters, sums and optimizer state, and what it
  // shares of the workers' memory.
  int64_t shard_needs_bytes = 0;
  std::string skipped;  // why there are no samples
};

struct LatencyResult {
  std::string transport;
  int64_t bytes = 0;  // pushed, and as many pulled, as encoded
  WireLatency latency;
};

// What was tried to find the raw baseline's best.
struct RawCandidate {
  std::string transport;
  int64_t chunk_bytes = 0;
  int socket_buffer_bytes = 0;
  double goodput = 0;  // median
};

struct WireResults {
  std::vector<RawCandidate> candidates;
  std::vector<GoodputResult> goodput;
  // This system with 1 worker and 1 shard over TCP, in turn with 8 workers and 1 shard.
  GoodputSamples one_beside_eight;
  std::vector<LatencyResult> latency;
};

// Measures everything, telling on standard error what it does. Each layout is first verified
// in both systems, then measured in turn: ps, raw, ps, raw, ... with the transports in turn as
// well where memory allows, since a shared machine is not as fast from one minute to the next.
// Errors: those of WireCluster; the first ends all.
absl::StatusOr<WireResults> MeasureWire(const WireOptions& options, const std::string& folder,
                                        const Interrupts* interrupts);

}  // namespace ps

#endif  // PS_BENCH_WIRE_MEASURE_H_
