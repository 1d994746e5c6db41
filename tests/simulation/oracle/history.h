#ifndef EVENSHARD_TESTS_SIMULATION_HISTORY_H_
#define EVENSHARD_TESTS_SIMULATION_HISTORY_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/chunk_clock.h"
#include "common/config/config.h"
#include "server/store/parameter_store.h"
#include "worker/data/order/dealing.h"

namespace evenshard {

// A chunk as it was at one moment.
struct ChunkState {
  ChunkClock clock;
  std::vector<float> arrays = {};  // the parameters, and then the optimizer's arrays
  // What is kept of what each worker was sent: the versions, and one array after another.
  std::vector<uint64_t> sent_versions = {};
  std::vector<float> sent = {};

  static ChunkState Of(const StoredChunk& chunk) ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  // Whether every bit is the same: of all of it, and of what checkpoints have.
  bool HasBitsOf(const ChunkState& other) const;
  bool HasWrittenBitsOf(const ChunkState& other) const;
  // The clock as checkpoints have it.
  ChunkClock Written() const;
  std::string Describe() const;
};

// A change of a chunk, after which it was in `state`.
struct ChangeRecord {
  ChunkState state;
  uint64_t iteration = 0;  // of the pushes, as on the wire
  UpdateRate rate = {};
  std::vector<uint32_t> workers;  // whose pushes were counted
  // What each of them read, if its push is known.
  std::vector<std::optional<Dealing::Share>> shares = {};
  // With clipping by norm, if there was a gradient: the factor on the mean, and the sum of the
  // mean's squares.
  std::optional<double> coefficient = {};
  double squares = 0;
};

// What one primary of a slot did to one chunk, from the moment at which it became primary.
struct ChunkHistory {
  ChunkState first;
  std::vector<ChangeRecord> changes;
  // How many of the changes the next primary of the slot has; the others are gone.
  std::optional<size_t> kept;
  // How many of the changes a worker has been told of.
  size_t acknowledged = 0;

  size_t length() const { return kept.value_or(changes.size()); }
  // The state after so many changes.
  const ChunkState& After(size_t changes_made) const {
    return changes_made == 0 ? first : changes[changes_made - 1].state;
  }
};

// A generation of a run: going back to a checkpoint begins another one, and so does starting the
// run again.
struct GenerationId {
  uint64_t run = 0;  // counts the times that the run was started
  uint64_t generation = 0;

  friend auto operator<=>(const GenerationId&, const GenerationId&) = default;
  std::string ToString() const;
};

// One primary of a slot.
struct Instance {
  int number = 0;
  int process = 0;
  int slot = 0;
  GenerationId generation = {};
  uint64_t view = 0;                             // in which it became primary
  std::map<uint32_t, ChunkHistory> chunks = {};  // by id
};

// A push, as a worker made it.
struct PushRecord {
  bool skip = false;
  std::vector<float> gradient = {};
  float weight = 1;
  std::optional<Dealing::Share> share = {};
  std::vector<float> read = {};  // the parameters from which the gradient was computed

  friend bool operator==(const PushRecord&, const PushRecord&) = default;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_HISTORY_H_
