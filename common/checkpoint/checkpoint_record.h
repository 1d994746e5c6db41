#ifndef EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_RECORD_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_RECORD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/checkpoint/chunk_clock.h"
#include "common/checkpoint/states_by_name.h"
#include "proto/view.pb.h"

namespace evenshard {

// The version of the files of checkpoints. A program reads its own version only.
inline constexpr uint64_t kCheckpointFormat = 6;
// The largest record or manifest that is read.
inline constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;

// What all shards of a checkpoint agree on.
struct CheckpointFacts {
  CheckpointId id;
  // SYNC: the exchange of the cut, the first whose pushes are not in it. ASYNC: id.iteration.
  uint64_t exchange = 0;
  uint64_t run = 0;  // View::run
  int shards = 0;
  int workers = 0;
  std::string model;                            // its name
  std::map<std::string, std::string> settings;  // CheckpointSettings of its config
  uint64_t config_fingerprint = 0;
  uint64_t plan_fingerprint = 0;
  // View::worker_set up to the cut, and the number of the view that it is from. A slot may finish
  // its file in an older view than the one in which the other slots reach the cut.
  uint64_t view = 0;
  std::vector<WorkerSet> worker_set = {};
};

// A slice of a tensor in a shard's file, as chunks. Its arrays are the parameters, and then those
// of the optimizer's state.
struct RecordedSlice {
  std::string tensor;
  std::vector<int64_t> shape;                    // of the whole tensor
  int64_t begin = 0;                             // first element in the tensor
  int64_t size = 0;                              // elements
  std::vector<int64_t> offsets;                  // by array: its place in the file
  std::vector<int64_t> chunk_sizes;              // elements, in order and without gaps
  std::vector<uint32_t> clocks;                  // by chunk: an index in ShardRecord::clocks
  std::vector<std::vector<uint64_t>> checksums;  // by array, by chunk
};

// Describes a shard's file, which is on disk before the record is.
struct ShardRecord {
  CheckpointFacts facts;
  int shard = 0;
  int64_t file_bytes = 0;
  int64_t header_bytes = 0;
  uint64_t header_checksum = 0;
  std::vector<ChunkClock> clocks;  // all different
  std::vector<RecordedSlice> slices;
  StatesByName registered;  // of slot 0
};

struct Manifest {
  absl::Time written;                // to the second
  std::vector<ShardRecord> records;  // by shard; at least one

  // Those of the record with the newest view.
  const CheckpointFacts& facts() const;
};

// Write a record or a manifest as JSON with a checksum. Equal records give equal texts.
std::string FormatRecord(const ShardRecord& record);
std::string FormatManifest(const Manifest& manifest);

// Read such a text. What they return is consistent in itself: the sizes of lists fit one another,
// arrays lie within their file, and a manifest has the records of all shards of one checkpoint.
// `path` is for errors. Errors: DATA_LOSS if the text is not as it was written; FAILED_PRECONDITION
// if it was written by a newer version.
absl::StatusOr<ShardRecord> ParseRecord(absl::string_view text, const std::string& path);
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, const std::string& path);

// Returns whether both describe the same checkpoint, whatever their views.
bool SameFacts(const CheckpointFacts& a, const CheckpointFacts& b);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_RECORD_H_
