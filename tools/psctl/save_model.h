#ifndef PS_TOOLS_PSCTL_SAVE_MODEL_H_
#define PS_TOOLS_PSCTL_SAVE_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "common/config/config.h"

namespace ps {

// Pulls the parameters of all shards, one shard after another, into a safetensors file at `path`.
// Each shard's are those of its primary by the newest view, if the config has `recovery`. After an
// error the file is as before. One chunk is in memory at a time. If the run goes on meanwhile, each
// chunk is from one iteration, but different chunks may be from different ones.
//
// Errors: those of AtomicFile for the path, before anything is pulled. All others name the shard:
// its own (UNAVAILABLE, FAILED_PRECONDITION for another plan); DEADLINE_EXCEEDED after
// limits.exchange_seconds; DATA_LOSS if a chunk is not the shard's, comes twice or not at all, or
// has a wrong size.
absl::Status SaveModel(const Config& config, const std::string& path);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_SAVE_MODEL_H_
