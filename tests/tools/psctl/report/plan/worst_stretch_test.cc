#include "tools/psctl/report/plan/worst_stretch.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "tests/common/placement/plan/plan_fixture.h"

namespace evenshard {
namespace {

// Layers of 64 elements each.
Model EqualLayers(int count) {
  ModelSpec spec;
  spec.mutable_input()->set_channels(8);
  spec.mutable_input()->set_height(1);
  spec.mutable_input()->set_width(1);
  for (int i = 0; i < count; ++i) {
    LayerSpec* layer = spec.add_layer();
    layer->set_name("layer" + std::to_string(i));
    layer->mutable_linear()->set_out_features(8);
    layer->mutable_linear()->set_bias(false);
  }
  return MustCreate(spec);
}

TEST_CASE("with memory-based placement one shard has a whole stretch") {
  const Model model = EqualLayers(8);
  const Stretch worst = WorstStretch(model, MustCreate(model, MemoryBased(), 4), {});
  CHECK(worst.first_layer == 0);
  CHECK(worst.last_layer == 1);
  CHECK(worst.elements == 128);
  CHECK(worst.shard == 0);
  CHECK(worst.ratio == Approx(4));
}

TEST_CASE("with round robin the neighbouring layers are on different shards") {
  const Model model = EqualLayers(8);
  const Plan plan = MustCreate(model, LayerBased(Partition::ROUND_ROBIN), 4);
  CHECK(WorstStretch(model, plan, {}).ratio == Approx(2));
}

TEST_CASE("with striped placement every shard has its share of every stretch") {
  const Model model = Builtin("resnet152");
  constexpr int64_t kChunkBytes = 64 << 10;
  const Plan striped = MustCreate(model, Striped(), 5, kChunkBytes);
  CHECK(WorstStretch(model, striped, {}).ratio < 1.05);
  const std::vector<double> rates = {10, 10, 10, 10, 2.5};
  const Plan by_rates = MustCreate(model, Striped(), 5, kChunkBytes, rates);
  CHECK(WorstStretch(model, by_rates, rates).ratio < 1.05);
  // Shares that are equal in bytes are too much for the slow shard.
  const Stretch slow = WorstStretch(model, striped, rates);
  CHECK(slow.shard == 4);
  CHECK(slow.ratio == Approx(42.5 / 5 / 2.5).epsilon(0.05));
}

TEST_CASE("one shard has its share, which is the whole model") {
  const Model model = Builtin("vgg16");
  const Stretch worst = WorstStretch(model, MustCreate(model, MemoryBased(), 1), {});
  CHECK(worst.elements == model.element_count());
  CHECK(worst.shard == 0);
  CHECK(worst.ratio == Approx(1));
}

TEST_CASE("no stretch of a drawn model is worse, and none is longer than it has to be") {
  const auto seed = GENERATE(range(0, 50));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Model model = RandomModel(random);
  const int shards = 1 + random() % 3;
  const absl::StatusOr<Plan> plan = Plan::Create(model, MemoryBased(), shards, 64);
  if (!plan.ok()) return;  // too small for so many
  const Stretch worst = WorstStretch(model, *plan, {});
  const std::vector<Layer>& layers = model.layers();
  double largest = 0;
  for (size_t first = 0; first < layers.size(); ++first) {
    int64_t sum = 0;
    std::vector<int64_t> on_shard(shards);
    for (size_t last = first; last < layers.size(); ++last) {
      sum += layers[last].elements;
      for (const Slice& slice : plan->slices()) {
        const int tensor = slice.tensor - layers[last].first_tensor;
        if (tensor >= 0 && tensor < layers[last].tensor_count) on_shard[slice.shard] += slice.size;
      }
      const int64_t least_end = std::min(layers[first].elements, layers[last].elements);
      if (sum * shards < model.element_count()) continue;
      if ((sum - least_end) * shards >= model.element_count()) continue;
      for (int shard = 0; shard < shards; ++shard) {
        largest = std::max(largest, shards * (on_shard[shard] / static_cast<double>(sum)));
      }
    }
  }
  CHECK(worst.ratio == Approx(largest));
  CHECK(layers[worst.first_layer].elements > 0);
  CHECK(layers[worst.last_layer].elements > 0);
}

}  // namespace
}  // namespace evenshard
