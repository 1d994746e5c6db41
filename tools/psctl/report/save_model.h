#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_SAVE_MODEL_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_SAVE_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"

namespace evenshard {

struct SavedModel {
  // How many iterations of training the parameters have. Absent if there is no one such number.
  std::optional<int64_t> iteration = std::nullopt;
  // Why not, if it is absent.
  std::string why_not = {};
};

// Writes the parameters of all shards at one iteration into a safetensors file at `path`, while the
// run may go on (RunReader). If the run has failed, or nobody trains and the chunks are at
// different iterations, it writes every chunk as it is. Each shard's parameters are those of its
// primary by the newest view, if the config has `recovery`. After an error the file is as before. A
// few chunks are in memory at a time.
//
// Errors: those of AtomicFile for the path, before anything is received. All others name the shard:
// its own (UNAVAILABLE, FAILED_PRECONDITION for another plan); DEADLINE_EXCEEDED after
// limits.exchange_seconds; DATA_LOSS if a chunk is not the shard's, comes twice or not at all, or
// has a wrong size.
absl::StatusOr<SavedModel> SaveModel(const PlannedConfig& config, const std::string& path);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_SAVE_MODEL_H_
