#ifndef EVENSHARD_SERVER_SUMMARY_H_
#define EVENSHARD_SERVER_SUMMARY_H_

#include <string>

#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"

namespace evenshard {

// Returns what a shard logs when it starts, as in
// "owns 69,178,772 parameters (276.7 MB) in chunks: 275".
std::string Ownership(const PlannedConfig& config, int shard);

// Returns what AUTO weighed, for the log: "AUTO chose STRIPED by rates: 306ms an iteration
// predicted (MEMORY_BASED 394ms, ...)". REQUIRES: the config's scheme is AUTO.
std::string AutoChoice(const PlannedConfig& config);

// Returns what a shard has done, in one line, for the log when it ends.
std::string Summary(const ShardStats& stats);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SUMMARY_H_
