#include "tools/psctl/report/plan/worst_stretch.h"

#include <numeric>
#include <vector>

namespace evenshard {
namespace {

// Returns the elements of each layer on each shard: [layer][shard].
std::vector<std::vector<int64_t>> ElementsOnShards(const Model& model, const Plan& plan) {
  std::vector<int> layer_of_tensor(model.tensors().size());
  std::vector<std::vector<int64_t>> elements;
  for (const Layer& layer : model.layers()) {
    for (int i = 0; i < layer.tensor_count; ++i) {
      layer_of_tensor[layer.first_tensor + i] = static_cast<int>(elements.size());
    }
    elements.emplace_back(plan.shards());
  }
  for (const Slice& slice : plan.slices()) {
    elements[layer_of_tensor[slice.tensor]][slice.shard] += slice.size;
  }
  return elements;
}

}  // namespace

Stretch WorstStretch(const Model& model, const Plan& plan, absl::Span<const double> shard_rates) {
  const int shards = plan.shards();
  std::vector<double> rates(shard_rates.begin(), shard_rates.end());
  if (rates.empty()) rates.assign(shards, 1);
  const double rate_of_all = std::accumulate(rates.begin(), rates.end(), 0.0);
  const std::vector<Layer>& layers = model.layers();
  const std::vector<std::vector<int64_t>> elements = ElementsOnShards(model, plan);
  const auto is_long_enough = [&](int64_t sum) { return sum * shards >= model.element_count(); };

  Stretch worst;
  worst.ratio = 0;  // below that of any stretch
  int first = 0;
  int64_t sum = 0;                        // of the layers from `first` to `last`
  std::vector<int64_t> on_shard(shards);  // the part of the sum on each shard
  for (int last = 0; last < static_cast<int>(layers.size()); ++last) {
    sum += layers[last].elements;
    for (int shard = 0; shard < shards; ++shard) on_shard[shard] += elements[last][shard];
    while (is_long_enough(sum - layers[first].elements)) {
      sum -= layers[first].elements;
      for (int shard = 0; shard < shards; ++shard) on_shard[shard] -= elements[first][shard];
      ++first;
    }
    if (!is_long_enough(sum) || is_long_enough(sum - layers[last].elements)) continue;
    for (int shard = 0; shard < shards; ++shard) {
      const double ratio = on_shard[shard] / (sum * (rates[shard] / rate_of_all));
      if (ratio > worst.ratio) worst = {first, last, sum, shard, ratio};
    }
  }
  return worst;
}

}  // namespace evenshard
