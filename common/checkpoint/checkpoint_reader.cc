#include "common/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_settings.h"
#include "common/checkpoint/shard_file.h"
#include "common/checkpoint/shard_file_writer.h"

namespace evenshard {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckFacts(const CheckpointFacts& facts, const PlannedConfig& config) {
  RETURN_IF_ERROR(CheckSettings(facts.settings, config));
  // In a ring only the parts follow from the number of workers.
  if (facts.workers == config.workers() || config.is_ring()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint was written with workers: ", facts.workers,
                   ", but this config has ", config.workers()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    Storage* storage, const std::string& folder, const PlannedConfig& config,
    const CheckpointId& id) {
  CheckpointFolder checkpoints(storage, folder);
  ASSIGN_OR_RETURN(Manifest manifest, checkpoints.ReadManifest(id));
  std::unique_ptr<CheckpointReader> reader(
      new CheckpointReader(storage, std::move(checkpoints), std::move(manifest)));
  const absl::Status fits = reader->CheckFit(config);
  if (!fits.ok()) {
    return absl::Status(fits.code(), absl::StrCat(reader->folder_.FilePath(id, kManifestName), ": ",
                                                  fits.message()));
  }
  return reader;
}

absl::Status CheckpointReader::CheckFit(const PlannedConfig& config) {
  std::map<std::string, std::vector<Source>> stored;
  for (const ShardRecord& record : manifest_.records) {
    for (const RecordedSlice& slice : record.slices) {
      stored[slice.tensor].push_back({&record, &slice});
    }
  }
  std::vector<std::string> differences;
  for (const Tensor& tensor : config.model().tensors()) {
    std::vector<Source>& sources = sources_.emplace_back();
    auto found = stored.extract(tensor.name);
    if (found.empty()) {
      differences.push_back(absl::StrCat(tensor.name, " is missing there"));
      continue;
    }
    sources = std::move(found.mapped());
    if (sources[0].slice->shape != tensor.shape) {
      differences.push_back(absl::StrCat(tensor.name, " has the shape ",
                                         ShapeText(sources[0].slice->shape), " there and ",
                                         ShapeText(tensor.shape), " here"));
    }
  }
  for (const auto& [name, sources] : stored) {
    differences.push_back(absl::StrCat(Printable(name), " is missing here"));
  }
  if (!differences.empty()) {
    constexpr size_t kNamed = 5;
    const size_t more = differences.size() - std::min(differences.size(), kNamed);
    differences.resize(differences.size() - more);
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint is of another model, ", Printable(manifest_.facts().model),
                     ", than ", config.model().name(), ": ", absl::StrJoin(differences, "; "),
                     more > 0 ? absl::StrCat("; and ", more, " more tensors differ") : ""));
  }
  RETURN_IF_ERROR(CheckFacts(manifest_.facts(), config));
  return CheckCoverage(config);
}

absl::Status CheckpointReader::CheckCoverage(const PlannedConfig& config) {
  int arrays = 1;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Tensor& tensor = config.model().tensors()[i];
    const int tensor_arrays = 1 + OptimizerArrays(config, tensor);
    arrays = std::max(arrays, tensor_arrays);
    std::vector<Source>& sources = sources_[i];
    std::sort(sources.begin(), sources.end(),
              [](const Source& a, const Source& b) { return a.slice->begin < b.slice->begin; });
    int64_t end = 0;
    for (const Source& source : sources) {
      if (source.slice->begin != end || source.slice->size > tensor.size - end ||
          static_cast<int>(source.slice->offsets.size()) != tensor_arrays) {
        return absl::DataLossError(
            absl::StrCat("the checkpoint is damaged: it lacks a part of ", tensor.name));
      }
      end += source.slice->size;
    }
    if (end != tensor.size) {
      return absl::DataLossError(
          absl::StrCat("the checkpoint is damaged: it does not have all of ", tensor.name));
    }
  }
  files_.resize(manifest_.records.size());
  kept_.resize(arrays);
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadParameters(int tensor, int64_t begin, absl::Span<float> out) {
  return Read(0, tensor, begin, out);
}

absl::Status CheckpointReader::ReadOptimizerArray(int array, int tensor, int64_t begin,
                                                  absl::Span<float> out) {
  return Read(1 + array, tensor, begin, out);
}

void CheckpointReader::VisitChunks(
    int tensor, int64_t begin, int64_t size,
    absl::FunctionRef<bool(const Source&, size_t chunk, int64_t first)> visit) const {
  const int64_t end = begin + size;
  const std::vector<Source>& sources = sources_[tensor];
  const auto after =
      std::upper_bound(sources.begin(), sources.end(), begin,
                       [](int64_t at, const Source& source) { return at < source.slice->begin; });
  for (auto source = std::prev(after); source != sources.end(); ++source) {
    int64_t first = source->slice->begin;
    for (size_t chunk = 0; chunk < source->slice->chunk_sizes.size(); ++chunk) {
      if (first >= end) return;
      const int64_t next = first + source->slice->chunk_sizes[chunk];
      if (next > begin && !visit(*source, chunk, first)) return;
      first = next;
    }
  }
}

absl::Status CheckpointReader::Read(int array, int tensor, int64_t begin, absl::Span<float> out) {
  absl::Status status;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  VisitChunks(tensor, begin, out.size(), [&](const Source& source, size_t chunk, int64_t first) {
    const int64_t size = source.slice->chunk_sizes[chunk];
    if (first >= begin && first + size <= end) {
      status = ReadChunk(source, array, chunk, first, out.subspan(first - begin, size));
      return status.ok();
    }
    Kept& kept = kept_[array];
    if (kept.slice != source.slice || kept.chunk != chunk) {
      kept.slice = nullptr;  // until it has been read
      kept.elements.resize(size);
      status = ReadChunk(source, array, chunk, first, absl::MakeSpan(kept.elements));
      if (!status.ok()) return false;
      kept.slice = source.slice;
      kept.chunk = chunk;
    }
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + size);
    std::copy(kept.elements.begin() + (from - first), kept.elements.begin() + (to - first),
              out.begin() + (from - begin));
    return true;
  });
  return status;
}

absl::Status CheckpointReader::ReadChunk(const Source& source, int array, size_t chunk,
                                         int64_t first, absl::Span<float> out) {
  ASSIGN_OR_RETURN(const ReadableFile* const file, FileOf(*source.record));
  const int64_t offset = source.slice->offsets[array] +
                         (first - source.slice->begin) * static_cast<int64_t>(sizeof(float));
  return ReadChecked(
      *file, PathOf(*source.record), offset, source.slice->checksums[array][chunk],
      absl::MakeSpan(reinterpret_cast<char*>(out.data()), out.size() * sizeof(float)));
}

std::string CheckpointReader::PathOf(const ShardRecord& record) const {
  return folder_.FilePath(record.facts.id, ShardFileName(record.shard, record.facts.shards));
}

absl::StatusOr<const ReadableFile*> CheckpointReader::FileOf(const ShardRecord& record) {
  std::unique_ptr<ReadableFile>& file = files_[record.shard];
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, OpenShardFile(storage_, PathOf(record), record));
  }
  return file.get();
}

ChunkClock CheckpointReader::ClockOf(int tensor, int64_t begin, int64_t size) const {
  ChunkClock result;
  VisitChunks(tensor, begin, size, [&](const Source& source, size_t chunk, int64_t) {
    const ChunkClock& clock = source.record->clocks[source.slice->clocks[chunk]];
    result.version = std::max(result.version, clock.version);
    result.iteration = std::max(result.iteration, clock.iteration);
    result.assignments = std::max(result.assignments, clock.assignments);
    result.recent_assignments = std::max(result.recent_assignments, clock.recent_assignments);
    result.former_assignments = std::max(result.former_assignments, clock.former_assignments);
    result.steps = std::max(result.steps, clock.steps);
    result.next_iteration.resize(
        std::max(result.next_iteration.size(), clock.next_iteration.size()));
    for (size_t rank = 0; rank < clock.next_iteration.size(); ++rank) {
      result.next_iteration[rank] =
          std::max(result.next_iteration[rank], clock.next_iteration[rank]);
    }
    result.norms.resize(std::max(result.norms.size(), clock.norms.size()));
    for (size_t rank = 0; rank < clock.norms.size(); ++rank) {
      result.norms[rank] = std::max(result.norms[rank], clock.norms[rank]);
    }
    return true;
  });
  return result;
}

}  // namespace evenshard
