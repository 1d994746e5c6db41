#include "tests/simulation/oracle/history.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {

ChunkState ChunkState::Of(const StoredChunk& chunk) {
  ChunkState state{.clock = chunk.clock()};
  for (int i = 0; i < chunk.arrays(); ++i) {
    state.arrays.insert(state.arrays.end(), chunk.array(i).begin(), chunk.array(i).end());
  }
  return state;
}

bool ChunkState::HasBitsOf(const ChunkState& other) const {
  return arrays.size() == other.arrays.size() &&
         std::memcmp(arrays.data(), other.arrays.data(), arrays.size() * sizeof(float)) == 0;
}

ChunkClock ChunkState::Written() const {
  ChunkClock written = clock;
  written.all_absent = false;
  return written;
}

std::string ChunkState::Describe() const {
  return absl::StrCat(
      "version ", clock.version,
      clock.next_iteration.empty()
          ? absl::StrCat(", iteration ", clock.iteration)
          : absl::StrCat(", next iterations ", absl::StrJoin(clock.next_iteration, " ")));
}

std::string GenerationId::ToString() const {
  return run == 0 ? absl::StrCat("generation ", generation)
                  : absl::StrCat("generation ", generation, " of start ", run);
}

}  // namespace evenshard
