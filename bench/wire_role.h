#ifndef PS_BENCH_WIRE_ROLE_H_
#define PS_BENCH_WIRE_ROLE_H_

#include <string>

namespace ps {

// What one process of the system under test is told on its command line.
struct WireRole {
  std::string role;             // "shard" or "worker"
  std::string system;           // "ps", this system, or "raw", the baseline
  std::string config;           // ClusterConfig, text format
  int index = 0;                // which shard, or the worker's rank
  std::string addresses;        // of all shards, separated by commas; workers only
  int socket_buffer_bytes = 0;  // raw only; 0: the kernel's choice
};

// Runs until its standard input ends. Returns the exit code; reasons go to standard error.
//
// A shard says "listening ADDRESS". A worker says "ready BYTES": what was resident, with both
// buffers, before it connected. It then takes
//   run N      pushes and pulls N times: "ran START END", CLOCK_MONOTONIC in nanoseconds
//   verify     compares the parameters with what all runs so far must give: "verified"
//   latency N  N push-pulls and as many empty unary calls of gRPC to the same shard, in
//              turn: "latency P50 P99 P50 P99", in nanoseconds ("ps" only)
int RunWireRole(const WireRole& role);

}  // namespace ps

#endif  // PS_BENCH_WIRE_ROLE_H_
