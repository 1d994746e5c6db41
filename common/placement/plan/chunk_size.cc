#include "common/placement/plan/chunk_size.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

constexpr int kChunksOfShard = 256;
constexpr double kMostBytes = 640 << 10;
constexpr double kLeastBytes = 16 << 10;
// What a chunk takes of a processor at either end apart from its bytes: 10 us for the gradient's
// message and as much for the parameters' (docs/performance.md, 2026-11-22).
constexpr double kSecondsOfChunk = 20e-6;
// The processors of a host with fast links that work on chunks at the same time.
constexpr int kProcessors = 6;
constexpr double kDefaultGbps = 10;
constexpr double kBytesPerGigabit = 125e6;
constexpr int64_t kMultiple = 64;

}  // namespace

ChunkSize ChooseChunkSize(const Model& model, int shards, absl::Span<const double> shard_rates) {
  double least_share = 1.0 / shards;
  bool is_even = true;
  double gbps = kDefaultGbps;
  if (!shard_rates.empty()) {
    const auto [least, most] = std::minmax_element(shard_rates.begin(), shard_rates.end());
    is_even = *least == *most;
    if (!is_even) {
      least_share = *least / std::accumulate(shard_rates.begin(), shard_rates.end(), 0.0);
    }
    gbps = *most;
  }
  const double model_bytes = static_cast<double>(model.element_count()) * sizeof(float);
  const double wanted = model_bytes * least_share / kChunksOfShard;
  const double processed = gbps * kBytesPerGigabit * kSecondsOfChunk / kProcessors;

  double bytes = wanted;
  std::string reason =
      absl::StrCat(kChunksOfShard, " chunks for ", is_even ? "each of " : "the slowest of ", shards,
                   " shard", shards == 1 ? "" : "s");
  if (bytes < kLeastBytes) {
    bytes = kLeastBytes;
    reason = "smaller chunks would cost more than they gain";
  }
  if (bytes < processed) {
    bytes = processed;
    reason = absl::StrCat("with smaller chunks, processors would not keep up with links of ", gbps,
                          " Gb/s");
  }
  if (bytes >= kMostBytes) {
    bytes = kMostBytes;
    reason = "larger chunks would gain nothing";
  }
  const int64_t whole = static_cast<int64_t>(bytes);
  return {.bytes = (whole + kMultiple - 1) / kMultiple * kMultiple, .reason = std::move(reason)};
}

ChunkSize ChooseRingChunkSize(const Model& model, int workers) {
  constexpr double kChunksOfPart = 64;
  constexpr double kMostRingBytes = 1 << 20;
  const double model_bytes = static_cast<double>(model.element_count()) * sizeof(float);
  const double bytes =
      std::clamp(model_bytes / workers / kChunksOfPart, kLeastBytes, kMostRingBytes);
  return {.bytes = static_cast<int64_t>(bytes) / kMultiple * kMultiple,
          .reason = absl::StrCat(kChunksOfPart, " chunks for the part of each of ", workers,
                                 " workers, from 16 KiB to 1 MiB")};
}

void SetChunkLimits(int64_t chunk_bytes, Limits* limits) {
  limits->set_chunk_bytes(chunk_bytes);
  if (!limits->has_window_bytes()) {
    limits->set_window_bytes(std::clamp<int64_t>(chunk_bytes, 64 << 10, 640 << 10));
  }
  if (!limits->has_lead_bytes()) {
    limits->set_lead_bytes(std::clamp<int64_t>(chunk_bytes / 5 * 16, 128 << 10, 2 << 20));
  }
}

}  // namespace evenshard
