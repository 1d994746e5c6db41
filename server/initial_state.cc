#include "server/initial_state.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/checkpoint/checkpoint_reader.h"

namespace ps {
namespace {

absl::Status Restore(CheckpointReader& reader, StoredChunk& chunk) {
  const Chunk& info = chunk.info();
  absl::MutexLock lock(&chunk.mutex);
  RETURN_IF_ERROR(reader.ReadParameters(info.tensor, info.begin, chunk.mutable_array(0)));
  for (int i = 1; i < chunk.arrays(); ++i) {
    RETURN_IF_ERROR(
        reader.ReadOptimizerArray(i - 1, info.tensor, info.begin, chunk.mutable_array(i)));
  }
  chunk.clock() = reader.ClockOf(info.tensor, info.begin, info.size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InitialState> MakeInitialState(const Config& config, int slot, Storage* storage,
                                              const std::string& checkpoint) {
  InitialState state;
  ASSIGN_OR_RETURN(state.store, ParameterStore::Create(config, slot));
  if (checkpoint.empty()) return state;
  const std::optional<CheckpointId> id = ParseCheckpointId(checkpoint);
  if (!id.has_value() || storage == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", checkpoint, "\" is no checkpoint of this run"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                   CheckpointReader::Open(storage, config.proto().recovery().checkpoint().folder(),
                                          config, *id));
  for (StoredChunk& chunk : state.store->chunks()) RETURN_IF_ERROR(Restore(*reader, chunk));
  state.generation = reader->facts().id.generation;
  state.crew = reader->facts().crew;
  return state;
}

}  // namespace ps
