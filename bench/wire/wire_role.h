#ifndef EVENSHARD_BENCH_WIRE_WIRE_ROLE_H_
#define EVENSHARD_BENCH_WIRE_WIRE_ROLE_H_

#include <string>

namespace evenshard {

// The flags of one process of the system under test.
struct WireRole {
  std::string role;                   // "shard" or "worker"
  std::string system;                 // "ps", or "raw" for the baseline
  std::string config;                 // ClusterConfig in text format
  int index = 0;                      // number of the shard, or rank of the worker
  std::string addresses;              // addresses of all shards, separated by commas; workers only
  int socket_buffer_bytes = 0;        // raw only; 0 leaves it to the kernel
  std::string log_level = "warning";  // see LogLevelFlag
};

// Runs a shard or a worker until its standard input ends. Returns the exit code, and logs the
// reason for a failure to standard error.
//
// A shard first writes "listening ADDRESS". A worker connects and then writes "ready BYTES", its
// resident memory with both buffers just before it connected. A worker answers these commands:
//   run N      pushes and pulls N times. The answer is "ran START END", in nanoseconds of
//              CLOCK_MONOTONIC.
//   verify     checks the parameters against what all push-pulls so far must give. The answer is
//              "verified".
//   latency N  makes N push-pulls, in turn with N empty unary calls to the same shard. The answer
//              is "latency P50 P99 P50 P99", in nanoseconds, first of push-pulls and then of calls.
//              Only for ps.
int RunWireRole(const WireRole& role);

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_WIRE_ROLE_H_
