#ifndef PS_TOOLS_PSCTL_SAVE_MODEL_H_
#define PS_TOOLS_PSCTL_SAVE_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "common/config/config.h"

namespace ps {

// Pulls the parameters of all shards, one after the other, straight into a safetensors
// file at `path`, which then holds the whole model or, after an error, is as before.
// Holds one chunk in memory. In a run that goes on meanwhile, each chunk is of one
// iteration, but different chunks may be of different ones.
//
// Errors: those of AtomicFile for the path, before anything is pulled; a shard's own
// (UNAVAILABLE, FAILED_PRECONDITION for another plan), DEADLINE_EXCEEDED after
// limits.exchange_seconds, naming the shard; DATA_LOSS for a chunk that is not the
// shard's, comes twice or not at all, or has a wrong size.
absl::Status SaveModel(const Config& config, const std::string& path);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_SAVE_MODEL_H_
