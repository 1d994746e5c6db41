#include "tests/simulation/oracle/history.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {
namespace {

bool HaveSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

ChunkState ChunkState::Of(const StoredChunk& chunk) {
  ChunkState state{.clock = chunk.clock()};
  for (int i = 0; i < chunk.arrays(); ++i) {
    state.arrays.insert(state.arrays.end(), chunk.array(i).begin(), chunk.array(i).end());
  }
  state.sent_versions = chunk.sent().versions();
  for (size_t rank = 0; rank < chunk.sent().workers(); ++rank) {
    const absl::Span<const float> sent = chunk.sent().copy(rank);
    state.sent.insert(state.sent.end(), sent.begin(), sent.end());
  }
  return state;
}

bool ChunkState::HasBitsOf(const ChunkState& other) const {
  return HasWrittenBitsOf(other) && sent_versions == other.sent_versions &&
         HaveSameBits(sent, other.sent);
}

bool ChunkState::HasWrittenBitsOf(const ChunkState& other) const {
  return HaveSameBits(arrays, other.arrays);
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
