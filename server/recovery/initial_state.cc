#include "server/recovery/initial_state.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/initial_parameters.h"
#include "common/checkpoint/storage/real_storage.h"

namespace evenshard {
namespace {

absl::Status Restore(const PlannedConfig& config, CheckpointReader& reader, StoredChunk& chunk) {
  const Chunk& info = chunk.info();
  absl::MutexLock lock(&chunk.mutex);
  RETURN_IF_ERROR(reader.ReadParameters(info.tensor, info.begin, chunk.mutable_array(0)));
  for (int i = 1; i < chunk.arrays(); ++i) {
    RETURN_IF_ERROR(
        reader.ReadOptimizerArray(i - 1, info.tensor, info.begin, chunk.mutable_array(i)));
  }
  ChunkClock& clock = chunk.mutable_clock();
  clock = reader.ClockOf(info.tensor, info.begin, info.size);
  // The run before may have had another number of workers, or another update.max_norm.
  clock.norms.resize(config.proto().update().max_norm() > 0 ? config.workers() : 0);
  return absl::OkStatus();
}

// Replaces the random initial parameters by those of model.initial_parameters, if the config names
// such a file.
absl::Status FillFromFile(const PlannedConfig& config, Storage* storage, ParameterStore& store) {
  if (!config.proto().model().has_initial_parameters()) return absl::OkStatus();
  RealStorage files;  // for a run without checkpoints
  ASSIGN_OR_RETURN(const std::unique_ptr<const InitialParameters> initial,
                   InitialParameters::Open(storage == nullptr ? &files : storage, config));
  for (StoredChunk& chunk : store.chunks()) {
    absl::MutexLock lock(&chunk.mutex);
    RETURN_IF_ERROR(initial->Fill(chunk.info().tensor, chunk.info().begin, chunk.mutable_array(0)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<ParameterStore>> MakeInitialState(const PlannedConfig& config,
                                                                 int slot, Storage* storage,
                                                                 const std::string& checkpoint) {
  ASSIGN_OR_RETURN(std::shared_ptr<ParameterStore> store, ParameterStore::Create(config, slot));
  if (checkpoint.empty()) {
    RETURN_IF_ERROR(FillFromFile(config, storage, *store));
    return store;
  }
  const std::optional<CheckpointId> id = ParseCheckpointId(checkpoint);
  if (!id.has_value() || storage == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", checkpoint, "\" is no checkpoint of this run"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                   CheckpointReader::Open(storage, config.proto().recovery().checkpoint().folder(),
                                          config, *id));
  for (StoredChunk& chunk : store->chunks()) RETURN_IF_ERROR(Restore(config, *reader, chunk));
  if (slot == 0) {
    RETURN_IF_ERROR(store->registered_states().Keep(std::nullopt, reader->facts().exchange,
                                                    reader->registered()));
  }
  return store;
}

}  // namespace evenshard
