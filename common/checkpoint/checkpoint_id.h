#ifndef EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_ID_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_ID_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace evenshard {

// Names a checkpoint. A newer checkpoint has a larger id.
struct CheckpointId {
  uint64_t generation = 0;  // View::generation
  // SYNC: the iterations of training that are in it. ASYNC: counts the checkpoints.
  uint64_t iteration = 0;
  // SYNC: the assignments after that iteration that are in it, too (ChunkClock).
  uint64_t assignments = 0;

  // The name of its folder, "generation-0001-iteration-0000000120", or with assignments
  // "generation-0001-iteration-0000000120+1".
  std::string ToString() const;

  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

// The inverse of ToString(). Returns nullopt for any other text.
std::optional<CheckpointId> ParseCheckpointId(absl::string_view name);

// The names of the files in a checkpoint's folder: a shard's data and its record, and the manifest,
// which makes the checkpoint complete.
std::string ShardFileName(int shard, int shards);    // "shard-0-of-4.safetensors"
std::string ShardRecordName(int shard, int shards);  // "shard-0-of-4.json"
inline constexpr char kManifestName[] = "manifest.json";

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_ID_H_
