#ifndef EVENSHARD_COMMON_NET_PULLED_CHUNKS_H_
#define EVENSHARD_COMMON_NET_PULLED_CHUNKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/placement/plan/plan.h"
#include "proto/parameter_server.pb.h"

namespace evenshard {

// What has come of a shard's chunks in a pull or a snapshot, which is checked before anybody uses
// it. Not thread-safe.
class PulledChunks {
 public:
  // What all chunks that the shard sends must be.
  struct Expected {
    std::optional<uint64_t> iteration = {};
    bool may_lack_data = false;
  };
  // `plan` must outlive the object.
  PulledChunks(const Plan* plan, int shard, const Expected& expected)
      : plan_(*plan), shard_(shard), expected_(expected), received_(plan->chunks().size()) {}

  // Notes a message, whose chunk is one of the plan's after that. Errors: DATA_LOSS if the chunk
  // belongs to another shard or has come before, or has the wrong encoding, size or iteration.
  absl::Status Add(const ParameterChunk& message);
  // Errors: DATA_LOSS if one of the shard's chunks has not come.
  absl::Status CheckEnd() const;

 private:
  const Plan& plan_;
  const int shard_;
  const Expected expected_;
  std::vector<bool> received_;  // by chunk
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_PULLED_CHUNKS_H_
