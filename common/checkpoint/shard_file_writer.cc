#include "common/checkpoint/shard_file_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_settings.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/safetensors.h"
#include "common/config/optimizer_arrays.h"

namespace evenshard {
namespace {

ShardRecord MakeRecord(const PlannedConfig& config, const CheckpointPart& part, const Cut& cut) {
  ShardRecord record;
  record.facts = {.id = cut.id,
                  .exchange = cut.exchange,
                  .run = cut.run,
                  .shards = part.parts,
                  .workers = config.workers(),
                  .model = config.model().name(),
                  .settings = CheckpointSettings(config),
                  .config_fingerprint = config.fingerprint(),
                  .plan_fingerprint = part.plan_fingerprint};
  record.shard = part.index;
  return record;
}

// The name of an array of a slice in the file. Array 0 has the parameters.
std::string ArrayName(const RecordedSlice& slice, int array) {
  const std::string prefix = array == 0 ? "" : absl::StrCat("optimizer.", array - 1, "/");
  return absl::StrCat(prefix, slice.tensor, "[", slice.begin, ":", slice.begin + slice.size, "]");
}

// Sets the places of all arrays, first those of all parameters, and returns the file's layout.
SafetensorsLayout LayOut(ShardRecord* record) {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::pair<RecordedSlice*, int>> owners;
  size_t arrays = 0;
  for (const RecordedSlice& slice : record->slices) arrays = std::max(arrays, slice.offsets.size());
  for (int array = 0; array < static_cast<int>(arrays); ++array) {
    for (RecordedSlice& slice : record->slices) {
      if (array >= static_cast<int>(slice.offsets.size())) continue;
      entries.push_back({ArrayName(slice, array), {slice.size}});
      owners.emplace_back(&slice, array);
    }
  }
  SafetensorsLayout layout = LayOutSafetensors(
      entries, {{"model", record->facts.model},
                {"checkpoint", record->facts.id.ToString()},
                {"shard", absl::StrCat(record->shard, " of ", record->facts.shards)}});
  for (size_t i = 0; i < owners.size(); ++i) {
    owners[i].first->offsets[owners[i].second] = layout.tensor_offsets[i];
  }
  record->file_bytes = layout.file_size;
  record->header_bytes = static_cast<int64_t>(layout.header.size());
  record->header_checksum = Checksum(layout.header);
  return layout;
}

// Returns OK if this cut's files of this slot may be written.
absl::Status CheckNothingElseIsThere(Storage* storage, const std::string& folder,
                                     const ShardRecord& record) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, storage->ListFolder(folder));
  const auto exists = [&names](const std::string& name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  if (exists(kManifestName)) {
    return absl::AlreadyExistsError(absl::StrCat(folder, " has a complete checkpoint already"));
  }
  const std::string name = ShardRecordName(record.shard, record.facts.shards);
  if (!exists(name)) return absl::OkStatus();
  const std::string path = absl::StrCat(folder, "/", name);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(storage, path, kMaxRecordBytes));
  const absl::StatusOr<ShardRecord> earlier = ParseRecord(text, path);
  // A damaged record was never part of a checkpoint.
  if (!earlier.ok() || SameFacts(earlier->facts, record.facts)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(folder,
                   " has the files of another run or config, allowed: a folder of its own "
                   "for each run (recovery.checkpoint.folder)"));
}

}  // namespace

int OptimizerArrays(const PlannedConfig& config, const Tensor& tensor) {
  if (tensor.role != TensorRole::kParameter) return 0;
  return StateArrays(config.proto());
}

CheckpointPart PartOfSlot(const PlannedConfig& config, int slot) {
  CheckpointPart part = {
      .index = slot, .parts = config.shards(), .plan_fingerprint = config.plan().fingerprint()};
  for (const Slice& slice : config.plan().slices()) {
    if (slice.shard == slot) part.slices.push_back(slice);
  }
  for (const uint32_t id : config.plan().chunks_of_shard(slot)) {
    part.chunks.push_back(config.plan().chunks()[id]);
  }
  return part;
}

absl::StatusOr<std::unique_ptr<ShardFileWriter>> ShardFileWriter::Create(
    Storage* storage, const std::string& folder, const PlannedConfig& config,
    const CheckpointPart& part, const Cut& cut) {
  RETURN_IF_ERROR(CheckOwner(storage, folder, cut.run));
  std::unique_ptr<ShardFileWriter> writer(new ShardFileWriter(
      storage, absl::StrCat(folder, "/", cut.id.ToString()), MakeRecord(config, part, cut)));
  ShardRecord& record = writer->record_;
  std::map<std::pair<int, int64_t>, int> slice_at;  // by tensor and first element
  for (const Slice& slice : part.slices) {
    const Tensor& tensor = config.model().tensors()[slice.tensor];
    const int arrays = 1 + OptimizerArrays(config, tensor);
    slice_at[{slice.tensor, slice.begin}] = static_cast<int>(record.slices.size());
    record.slices.push_back({.tensor = tensor.name,
                             .shape = tensor.shape,
                             .begin = slice.begin,
                             .size = slice.size,
                             .offsets = std::vector<int64_t>(arrays),
                             .chunk_sizes = {},
                             .clocks = {},
                             .checksums = std::vector<std::vector<uint64_t>>(arrays)});
  }
  for (const Chunk& chunk : part.chunks) {
    const int slice = std::prev(slice_at.upper_bound({chunk.tensor, chunk.begin}))->second;
    RecordedSlice& recorded = record.slices[slice];
    writer->places_[chunk.id] = {
        .slice = slice,
        .chunk = static_cast<int>(recorded.chunk_sizes.size()),
        .offset = (chunk.begin - recorded.begin) * static_cast<int64_t>(sizeof(float)),
        .added = false};
    recorded.chunk_sizes.push_back(chunk.size);
    for (std::vector<uint64_t>& checksums : recorded.checksums) checksums.push_back(0);
  }

  RETURN_IF_ERROR(storage->MakeFolder(writer->folder_));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, storage->ListFolder(folder));
  if (!std::binary_search(names.begin(), names.end(), cut.id.ToString())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write to ", writer->folder_, ": it is a symbolic link, allowed: a folder"));
  }
  RETURN_IF_ERROR(CheckNothingElseIsThere(storage, writer->folder_, record));
  const SafetensorsLayout layout = LayOut(&record);
  ASSIGN_OR_RETURN(writer->file_,
                   storage->CreateFile(absl::StrCat(writer->folder_, "/",
                                                    ShardFileName(part.index, record.facts.shards)),
                                       layout.file_size));
  RETURN_IF_ERROR(writer->file_->WriteAt(0, layout.header));
  return writer;
}

ShardFileWriter::ShardFileWriter(Storage* storage, std::string folder, ShardRecord record)
    : storage_(storage), folder_(std::move(folder)), record_(std::move(record)) {}

absl::Status ShardFileWriter::Add(const Chunk& chunk, absl::Span<const float> parameters,
                                  absl::Span<const float* const> optimizer_arrays,
                                  const ChunkClock& clock) {
  Place& place = places_.at(chunk.id);
  RETURN_IF_ERROR(WriteArray(place, 0, parameters.data(), chunk.size));
  const int arrays = static_cast<int>(record_.slices[place.slice].offsets.size());
  for (int array = 1; array < arrays; ++array) {
    RETURN_IF_ERROR(WriteArray(place, array, optimizer_arrays[array - 1], chunk.size));
  }
  clocks_[chunk.id] = clock;
  place.added = true;
  return absl::OkStatus();
}

absl::Status ShardFileWriter::WriteArray(const Place& place, int array, const float* elements,
                                         int64_t size) {
  RecordedSlice& slice = record_.slices[place.slice];
  const absl::string_view bytes(reinterpret_cast<const char*>(elements), size * sizeof(float));
  slice.checksums[array][place.chunk] = Checksum(bytes);
  return file_->WriteAt(slice.offsets[array] + place.offset, bytes);
}

absl::Status ShardFileWriter::Commit(uint64_t view, const std::vector<WorkerSet>& worker_set,
                                     StatesByName registered) {
  record_.registered = std::move(registered);
  record_.facts.view = view;
  record_.facts.worker_set = worker_set;
  // Clocks are numbered in the order of chunks, not of Add, so that equal cuts have equal records.
  std::map<ChunkClock, uint32_t> indices;
  for (RecordedSlice& slice : record_.slices) slice.clocks.resize(slice.chunk_sizes.size());
  for (const auto& [id, place] : places_) {
    if (!place.added) {
      return absl::FailedPreconditionError(
          absl::StrCat("the checkpoint ", folder_, " lacks chunk ", id));
    }
    const ChunkClock& clock = clocks_[id];
    const auto [index, is_new] =
        indices.emplace(clock, static_cast<uint32_t>(record_.clocks.size()));
    if (is_new) record_.clocks.push_back(clock);
    record_.slices[place.slice].clocks[place.chunk] = index->second;
  }
  RETURN_IF_ERROR(file_->Commit());
  return WriteWholeFile(
      storage_, absl::StrCat(folder_, "/", ShardRecordName(record_.shard, record_.facts.shards)),
      FormatRecord(record_));
}

}  // namespace evenshard
