// What update.max_norm promises.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/control/view/worker_set.h"
#include "common/optimizer/squared_norm.h"
#include "tests/simulation/oracle/oracle.h"

namespace evenshard {
namespace {

// Whether a worker has a say in the bound of an exchange's gradients.
bool TakesPart(const View& view, uint32_t rank, uint64_t iteration, bool is_sync) {
  if (is_sync) return IsInWorkerSet(view.worker_set(), rank, iteration);
  const WorkerView::State state = view.worker(static_cast<int>(rank)).state();
  return state != WorkerView::LOST && state != WorkerView::FINISHED;
}

// Returns infinity while too few of the workers have a mean.
double BoundOf(double max_norm, const std::vector<bool>& takes_part,
               const std::vector<double>& means) {
  std::vector<double> known;
  for (size_t rank = 0; rank < means.size(); ++rank) {
    if (takes_part[rank] && means[rank] > 0) known.push_back(means[rank]);
  }
  const auto all = static_cast<size_t>(std::count(takes_part.begin(), takes_part.end(), true));
  if (2 * known.size() <= all) return std::numeric_limits<double>::infinity();
  std::sort(known.begin(), known.end());
  return max_norm * known[(known.size() - 1) / 2];
}

}  // namespace

void Oracle::AppendCounted(GenerationId generation, const Chunk& chunk, const ChunkClock& before,
                           const ChangeRecord& record, const PushRecord& push,
                           std::vector<Counted>* counted) const {
  const Counted whole = {.push = &push, .gradient = push.gradient};
  const float max_norm = config_.proto().update().max_norm();
  if (max_norm == 0 || push.skip || record.rate.assigned.has_value() || config_.IsBuffer(chunk)) {
    return counted->push_back(whole);
  }
  SquaredNorm squared;
  squared.Add(0, reinterpret_cast<const UnalignedFloat*>(push.gradient.data()),
              static_cast<int64_t>(push.gradient.size()));
  const double norm = std::sqrt(squared.value()) / push.weight;
  const size_t first = counted->size();
  for (const View& view : views_.at(generation)) {
    std::vector<bool> takes_part(before.norms.size());
    for (size_t rank = 0; rank < takes_part.size(); ++rank) {
      takes_part[rank] = TakesPart(view, rank, record.iteration, sync_);
    }
    const double bound = BoundOf(max_norm, takes_part, before.norms);
    Counted one = whole;
    one.norm = std::min(norm, bound);
    one.is_limited = norm > bound;
    const auto factor = static_cast<float>(bound / norm);
    for (float& element : one.gradient) element *= one.is_limited ? factor : 1;
    const auto is_same = [&one](const Counted& other) { return other.norm == one.norm; };
    if (std::none_of(counted->begin() + first, counted->end(), is_same)) {
      counted->push_back(std::move(one));
    }
  }
}

}  // namespace evenshard
