#ifndef EVENSHARD_COMMON_READER_RUN_READER_H_
#define EVENSHARD_COMMON_READER_RUN_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "proto/parameter_server.grpc.pb.h"

namespace evenshard {

// Reads the parameters of a run at one iteration from all shards, without taking part in the run.
// Used by one thread at a time.
//
// Iterations are those of training: a snapshot of iteration n has the parameters after n
// iterations. The chunks also count the exchanges that assigned values. Under ASYNC, which has no
// iteration in common, a snapshot has every chunk as it is after at least as many updates as its
// iteration says.
class RunReader {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // with a model; must outlive this
    // For how long shards that cannot be reached are tried again. nullopt: limits.startup_seconds
    // until all have been reached for the first time, then limits.exchange_seconds.
    std::optional<absl::Duration> patience = std::nullopt;
    // Whether to wait for chunks that are behind others when no worker trains.
    bool waits_for_workers = true;
    std::stop_token stop = {};  // ends every call
  };

  explicit RunReader(Options options) : options_(std::move(options)) {}

  static constexpr int64_t kAny = -1;

  // Receives a snapshot that is newer than an iteration, and waits for one if there is none. Calls
  // `begin` at the beginning of each attempt, and then `take` for every chunk, with its parameters
  // as float32, from several threads at the same time. The chunks of an attempt that failed count
  // for nothing. An error of either is returned. Returns the snapshot's iteration.
  //
  // Errors, which name the shard:
  //   OUT_OF_RANGE: the run is over, and its last iteration is not newer.
  //   FAILED_PRECONDITION: another plan, or the run has failed; or chunks are at different
  //     iterations and no worker trains.
  //   DEADLINE_EXCEEDED: after `timeout`, or if a shard was not up in limits.startup_seconds.
  //   UNAVAILABLE: a shard could not be reached for limits.exchange_seconds.
  //   RESOURCE_EXHAUSTED: several attempts were read too slowly (limits.snapshot_bytes), or the
  //     shard serves too many readers.
  //   CANCELLED: `stop` was requested.
  absl::StatusOr<int64_t> Pull(
      int64_t newer_than, absl::Duration timeout, absl::FunctionRef<absl::Status()> begin,
      absl::FunctionRef<absl::Status(const Chunk&, absl::string_view data)> take);

 private:
  struct Connection {
    std::string address;
    std::unique_ptr<ParameterServer::Stub> stub;
  };
  struct Attempt;

  bool IsSync() const;
  // The first exchange at which there are parameters.
  uint64_t First() const { return options_.config->is_from_workers() ? 1 : 0; }
  absl::Status TryOnce(Attempt& attempt);
  // Asks all shards how far they have come.
  absl::StatusOr<std::vector<ShardStats>> AskShards(Attempt& attempt);
  // Chooses the exchange to ask for, or under ASYNC the version.
  absl::StatusOr<uint64_t> Choose(const std::vector<ShardStats>& stats, Attempt& attempt);
  absl::Status Receive(uint64_t k, Attempt& attempt);
  ParameterServer::Stub* StubOf(int shard, const std::string& address);
  // Called after a failed attempt. Returns OK to try again, after a pause.
  absl::Status AfterFailure(const absl::Status& failure, Attempt& attempt);
  absl::Status Sleep(absl::Duration duration, const Attempt& attempt);

  const Options options_;
  const RealClock clock_;
  bool has_reached_all_ = false;
  uint64_t margin_ = 0;                  // by how much the latest snapshot was asked for in advance
  std::vector<Connection> connections_;  // by shard
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_READER_RUN_READER_H_
