#ifndef EVENSHARD_COMMON_CHECKPOINT_SHARD_FILE_WRITER_H_
#define EVENSHARD_COMMON_CHECKPOINT_SHARD_FILE_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_record.h"
#include "common/checkpoint/chunk_clock.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// How many arrays of optimizer state a tensor has in a checkpoint: as many as the optimizer's kind
// needs for a parameter, and none for a running statistic.
int OptimizerArrays(const PlannedConfig& config, const Tensor& tensor);

// A checkpoint that is to be written.
struct Cut {
  CheckpointId id;
  uint64_t exchange = 0;  // see CheckpointFacts
  uint64_t run = 0;       // View::run
};

// What one file of a checkpoint has of the model.
struct CheckpointPart {
  int index = 0;  // the slot
  int parts = 1;  // of the checkpoint; those of all indices together are the model
  uint64_t plan_fingerprint = 0;
  std::vector<Slice> slices = {};  // in the order of the file
  std::vector<Chunk> chunks = {};  // with ids of their own; those of a slice in order
};

// A slot's part, by the config's plan.
CheckpointPart PartOfSlot(const PlannedConfig& config, int slot);

// Writes the file of one part, such as a slot's, and then its record. The file is a safetensors
// file with a tensor for each slice of a tensor and each array, such as "fc6/weight[0:1000]" and
// "optimizer.0/fc6/weight[0:1000]". Writing the same cut again gives the same bytes. Not
// thread-safe.
class ShardFileWriter {
 public:
  // Makes the checkpoint's folder in `folder` (recovery.checkpoint.folder) if necessary, and
  // reserves the file's space. `storage` and `config` must outlive the writer.
  // Errors: FAILED_PRECONDITION if the folder belongs to another run, or the checkpoint has files
  // of one; ALREADY_EXISTS if the checkpoint is complete already, so that there is nothing to do;
  // those of Storage, such as RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ShardFileWriter>> Create(Storage* storage,
                                                                 const std::string& folder,
                                                                 const PlannedConfig& config,
                                                                 const CheckpointPart& part,
                                                                 const Cut& cut);

  // Writes a chunk of the part. Chunks may come in any order. Does not keep the spans.
  // REQUIRES: the chunk is one of the part's, which was not added before; `parameters` has its
  // size, and so have the arrays of the optimizer's state, of which there are OptimizerArrays(). If
  // there are more, the first ones are taken.
  absl::Status Add(const Chunk& chunk, absl::Span<const float> parameters,
                   absl::Span<const float* const> optimizer_arrays, const ChunkClock& clock);

  // Puts the file in place, and then the record, which says that `worker_set` is that of the view
  // numbered `view`, as far as the cut, and, of slot 0, what the workers have registered. Blocks
  // until both are on disk. Errors: FAILED_PRECONDITION if a chunk was not added.
  absl::Status Commit(uint64_t view, const std::vector<WorkerSet>& worker_set,
                      StatesByName registered = {});

  int64_t file_bytes() const { return record_.file_bytes; }

 private:
  // Where a chunk belongs.
  struct Place {
    int slice = 0;       // in record_.slices
    int chunk = 0;       // in the slice
    int64_t offset = 0;  // bytes from the beginning of the slice's array
    bool added = false;
  };

  ShardFileWriter(Storage* storage, std::string folder, ShardRecord record);
  absl::Status WriteArray(const Place& place, int array, const float* elements, int64_t size);

  Storage* const storage_;
  const std::string folder_;  // of the checkpoint
  ShardRecord record_;
  std::unique_ptr<WritableFile> file_;
  std::map<uint32_t, Place> places_;       // by chunk id
  std::map<uint32_t, ChunkClock> clocks_;  // by chunk id
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_SHARD_FILE_WRITER_H_
