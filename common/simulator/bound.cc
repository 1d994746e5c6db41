#include "common/simulator/bound.h"

#include <algorithm>
#include <vector>

namespace ps {
namespace {

// Returns the time of one direction, in which every worker moves the whole model, and every shard
// moves its part for every worker.
double DirectionSeconds(const PlannedRun& run, int64_t element_bytes,
                        const std::vector<double>& worker_rates,
                        const std::vector<double>& shard_rates) {
  double seconds = 0;
  for (const double rate : worker_rates) {
    seconds = std::max(seconds, element_bytes * run.model.element_count() / rate);
  }
  for (int shard = 0; shard < run.plan.shards(); ++shard) {
    const int64_t elements = run.config.workers() * run.plan.shard_parameters(shard);
    seconds = std::max(seconds, element_bytes * elements / shard_rates[shard]);
  }
  return seconds;
}

}  // namespace

int64_t ElementBytes(Encoding encoding) { return encoding == FLOAT32 ? 4 : 2; }

Bound BoundOf(const PlannedRun& run, const ClusterRates& rates,
              absl::Span<const LayerTime> layer_times) {
  const ExchangeConfig& exchange = run.config.exchange();
  double compute_seconds = 0;
  for (const LayerTime& time : layer_times) {
    compute_seconds += time.forward_seconds + time.backward_seconds;
  }
  std::vector<double> taken_in = rates.shard_link;
  for (size_t shard = 0; shard < taken_in.size(); ++shard) {
    taken_in[shard] = std::min(taken_in[shard], rates.shard_processing[shard]);
  }

  Bound bound;
  bound.compute_seconds = compute_seconds * *std::max_element(rates.worker_slowdown.begin(),
                                                              rates.worker_slowdown.end());
  bound.push_seconds = DirectionSeconds(run, ElementBytes(exchange.gradient_encoding()),
                                        rates.worker_link, taken_in);
  bound.pull_seconds = DirectionSeconds(run, ElementBytes(exchange.parameter_encoding()),
                                        rates.worker_link, rates.shard_link);
  bound.iteration_seconds =
      exchange.schedule() == ExchangeConfig::SEQUENTIAL
          ? bound.compute_seconds + bound.push_seconds + bound.pull_seconds
          : std::max({bound.compute_seconds, bound.push_seconds, bound.pull_seconds});
  return bound;
}

}  // namespace ps
