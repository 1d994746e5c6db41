#ifndef EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_READER_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_record.h"
#include "common/checkpoint/chunk_clock.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Reads a complete checkpoint for a config, which may cut the same model in another way than the
// config that wrote it: another number of shards, partition or chunk size, and in a ring another
// number of workers. Opens only the files that are needed, and compares the checksum of all that it
// reads. Not thread-safe.
class CheckpointReader {
 public:
  // `storage` and `config` must outlive this.
  // Errors: NOT_FOUND if there is no such complete checkpoint; FAILED_PRECONDITION, naming the
  // difference, if it is of another model, optimizer kind, update policy or, without a ring, number
  // of workers, or of a newer version; DATA_LOSS if the manifest is damaged.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(Storage* storage,
                                                                const std::string& folder,
                                                                const PlannedConfig& config,
                                                                const CheckpointId& id);

  // The iteration, the generation, the run, the worker set, ...
  const CheckpointFacts& facts() const { return manifest_.facts(); }

  // What the workers had registered.
  const StatesByName& registered() const { return manifest_.records[0].registered; }

  // Reads elements [begin, begin + out.size()) of a tensor of the model: its parameters, or array
  // `array` of the optimizer's state, from 0 to OptimizerArrays() - 1. A chunk of the checkpoint is
  // read as a whole, and the last one is kept, so that ranges in ascending order, of any size, read
  // each byte once. Errors: DATA_LOSS, naming the file, if it is missing, too short, or does not
  // have the recorded checksum; then `out` has no defined contents.
  absl::Status ReadParameters(int tensor, int64_t begin, absl::Span<float> out);
  absl::Status ReadOptimizerArray(int array, int tensor, int64_t begin, absl::Span<float> out);

  // The clock of these elements. Where they were in several chunks, each number is the largest.
  // REQUIRES: size > 0.
  ChunkClock ClockOf(int tensor, int64_t begin, int64_t size) const;

 private:
  // A slice of a tensor in the checkpoint.
  struct Source {
    const ShardRecord* record;
    const RecordedSlice* slice;
  };
  // The last chunk of an array that was needed in part.
  struct Kept {
    const RecordedSlice* slice = nullptr;
    size_t chunk = 0;
    std::vector<float> elements;
  };

  CheckpointReader(Storage* storage, CheckpointFolder folder, Manifest manifest)
      : storage_(storage), folder_(std::move(folder)), manifest_(std::move(manifest)) {}

  // Set the members that follow from the manifest, and check that it fits the config.
  absl::Status CheckFit(const PlannedConfig& config);
  absl::Status CheckCoverage(const PlannedConfig& config);
  // Visits the chunks that have elements of a range, until `visit` returns false. `first` is a
  // chunk's first element in the tensor.
  void VisitChunks(int tensor, int64_t begin, int64_t size,
                   absl::FunctionRef<bool(const Source&, size_t chunk, int64_t first)> visit) const;
  // `array` counts the parameters as array 0.
  absl::Status Read(int array, int tensor, int64_t begin, absl::Span<float> out);
  absl::Status ReadChunk(const Source& source, int array, size_t chunk, int64_t first,
                         absl::Span<float> out);
  std::string PathOf(const ShardRecord& record) const;
  absl::StatusOr<const ReadableFile*> FileOf(const ShardRecord& record);

  Storage* const storage_;
  const CheckpointFolder folder_;
  const Manifest manifest_;
  std::vector<std::vector<Source>> sources_;          // by tensor, in the order of elements
  std::vector<std::unique_ptr<ReadableFile>> files_;  // by shard of the checkpoint, once opened
  std::vector<Kept> kept_;                            // by array
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_READER_H_
