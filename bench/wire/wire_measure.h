#ifndef EVENSHARD_BENCH_WIRE_WIRE_MEASURE_H_
#define EVENSHARD_BENCH_WIRE_WIRE_MEASURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/wire/wire_cluster.h"

namespace evenshard {

// What to measure, as given on the command line.
struct WireOptions {
  std::string model = "vgg16";
  std::vector<int> workers;
  std::vector<int> shards;
  std::vector<std::string> transports;
  std::vector<std::string> limits;  // fields of the config's `limits`; ps only
  Encoding encoding = FLOAT32;      // ps only; the raw baseline always sends FLOAT32
  std::string log_level;            // of the processes; ps only
  int repeat = 5;                   // windows per system
  double window_seconds = 1;        // shortest length of a window, which has one iteration at least
  int latency_count = 1000;
  // Every combination of these is tried for the raw baseline. With 0 the kernel sizes its buffers.
  std::vector<int64_t> raw_chunk_bytes = {256 << 10, 1 << 20, 4 << 20};
  std::vector<int> raw_socket_buffer_bytes = {0, 1 << 20};
};

// The results of one system in one layout, with one sample per window.
struct GoodputSamples {
  std::vector<double> goodput;     // bytes of gradients and parameters per second
  std::vector<double> cpu_per_gb;  // CPU seconds of all processes per 10^9 bytes
  std::vector<double> iteration_seconds;
  int64_t bytes_per_iteration = 0;  // all workers, both directions, as encoded
  WireMemory memory;
};
struct GoodputResult {
  WireLayout layout;
  GoodputSamples ps;
  GoodputSamples raw;
  // The fastest settings of the raw baseline.
  int64_t raw_chunk_bytes = 0;
  int raw_socket_buffer_bytes = 0;
  // The memory that the largest shard cannot do without: its parameters and sums, and the workers'
  // memory that it shares.
  int64_t shard_needs_bytes = 0;
  std::string skipped;  // why there are no samples; empty if there are
};

struct LatencyResult {
  std::string transport;
  int64_t bytes = 0;  // pushed, and as many pulled, as encoded
  WireLatency latency;
};

// One combination of settings that was tried for the raw baseline.
struct RawCandidate {
  std::string transport;
  int64_t chunk_bytes = 0;
  int socket_buffer_bytes = 0;
  double goodput = 0;  // median
};

struct WireResults {
  std::vector<RawCandidate> candidates;
  std::vector<GoodputResult> goodput;
  // Samples of ps with 1 worker and 1 shard over TCP, taken in turn with 8 workers and 1 shard.
  GoodputSamples one_beside_eight;
  std::vector<LatencyResult> latency;
};

// Measures everything and reports its progress on standard error. The results of each layout are
// verified in both systems before they are measured in turn: ps, raw, ps, raw, ... The transports
// take turns as well if memory permits, because the speed of a shared machine changes from minute
// to minute. Unix sockets are made in `folder`.
// Errors: the first error of a WireCluster, which ends the measurement.
absl::StatusOr<WireResults> MeasureWire(const WireOptions& options, const std::string& folder,
                                        const Interrupts* interrupts);

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_WIRE_MEASURE_H_
