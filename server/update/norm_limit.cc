#include "server/update/norm_limit.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "common/optimizer/squared_norm.h"
#include "common/wire/encoding.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How far a worker's mean moves to a new norm. With a fourth, twice as many gradients of small
// batches are limited, whose norms differ widely; with less, the bound follows more slowly.
constexpr double kTaken = 1.0 / 16;

// Makes the gradient's data the gradient's own.
void CopyData(Gradient* gradient) {
  auto copy = std::make_shared<std::string>(SegmentsSize(gradient->data), '\0');
  Copy(gradient->data, copy->data());
  gradient->data = {{copy->data(), copy->size()}};
  gradient->owner = std::move(copy);
}

double NormOf(const Chunk& chunk, const Gradient& gradient) {
  SquaredNorm squared;
  ForEachDecodedRun(static_cast<Encoding>(gradient.header.encoding), gradient.data, chunk.size,
                    [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                      squared.Add(first, floats, count);
                    });
  return std::sqrt(squared.value()) / gradient.header.weight;
}

void Scale(double factor, int64_t elements, Gradient* gradient) {
  auto scaled = std::make_shared<std::vector<float>>(elements);
  Decode(static_cast<Encoding>(gradient->header.encoding), gradient->data, absl::MakeSpan(*scaled));
  for (float& element : *scaled) element *= static_cast<float>(factor);
  gradient->header.encoding = FLOAT32;
  gradient->data = {
      {reinterpret_cast<const char*>(scaled->data()), scaled->size() * sizeof(float)}};
  gradient->owner = std::move(scaled);
}

}  // namespace

NormLimit::NormLimit(const PlannedConfig& config, ParameterStore* store)
    : config_(config), max_norm_(config.proto().update().max_norm()), limited_(config.workers()) {
  for (StoredChunk& chunk : store->chunks()) {
    absl::MutexLock lock(&chunk.mutex);
    chunk.mutable_clock().norms.resize(config.workers());
  }
}

bool NormLimit::IsLimited(const Chunk& chunk, const Gradient& gradient) const {
  return gradient.header.has_data() && !gradient.header.assigned.has_value() &&
         !config_.IsBuffer(chunk);
}

void NormLimit::Measure(const Chunk& chunk, const WorkerSession& session,
                        Gradient* gradient) const {
  if (!IsLimited(chunk, *gradient)) return;
  const bool is_shared = gradient->owner != nullptr && gradient->owner == session.buffers();
  if (!is_shared) gradient->norm = NormOf(chunk, *gradient);
}

double NormLimit::Limit(const StoredChunk& chunk, absl::FunctionRef<bool(uint32_t)> takes_part,
                        Gradient* gradient) {
  if (!IsLimited(chunk.info(), *gradient)) return 0;
  if (!gradient->norm.has_value()) {
    CopyData(gradient);
    gradient->norm = NormOf(chunk.info(), *gradient);
  }
  const double norm = *gradient->norm;
  if (!std::isfinite(norm)) return 0;
  const std::optional<double> bound = Bound(chunk.clock(), takes_part);
  if (!bound.has_value() || norm <= *bound) return norm;
  Count(chunk, *gradient, *bound);
  Scale(*bound / norm, chunk.info().size, gradient);
  return *bound;
}

void NormLimit::Note(uint32_t rank, double norm, ChunkClock* clock) {
  if (norm == 0) return;
  double& mean = clock->norms[rank];
  mean = mean == 0 ? norm : mean + kTaken * (norm - mean);
}

std::optional<double> NormLimit::Bound(const ChunkClock& clock,
                                       absl::FunctionRef<bool(uint32_t)> takes_part) const {
  std::vector<double> means;
  size_t workers = 0;
  for (uint32_t rank = 0; rank < clock.norms.size(); ++rank) {
    if (!takes_part(rank)) continue;
    ++workers;
    if (clock.norms[rank] > 0) means.push_back(clock.norms[rank]);
  }
  if (2 * means.size() <= workers) return std::nullopt;
  const auto median = means.begin() + (means.size() - 1) / 2;
  std::nth_element(means.begin(), median, means.end());
  return max_norm_ * *median;
}

void NormLimit::Count(const StoredChunk& chunk, const Gradient& gradient, double bound) {
  const GradientHeader& header = gradient.header;
  absl::MutexLock lock(&mutex_);
  Limited& limited = limited_[header.worker];
  if (!limited.notice.Grew(++limited.gradients)) return;
  spdlog::warn(
      "the gradient of {} (chunk {}) of worker {} at iteration {} has norm {:.3g} and is scaled "
      "down to {:.3g}, update.max_norm ({}) times the median of the workers' (so far of this "
      "worker: {})",
      config_.TensorOf(chunk.info()).name, header.chunk, header.worker,
      header.iteration - std::min(header.iteration, chunk.clock().assignments), *gradient.norm,
      bound, config_.proto().update().max_norm(), limited.gradients);
}

void NormLimit::FillStats(ShardStats* stats) const {
  absl::MutexLock lock(&mutex_);
  uint64_t all = 0;
  for (const Limited& limited : limited_) all += limited.gradients;
  stats->set_limited_pushes(all);
  for (WorkerStats& worker : *stats->mutable_worker()) {
    worker.set_limited_pushes(limited_[worker.worker()].gradients);
  }
}

}  // namespace evenshard
