#include "common/placement/plan/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/common/placement/plan/plan_fixture.h"

namespace evenshard {
namespace {

const std::vector<Partition>& AllPartitions() {
  static const std::vector<Partition> partitions = {
      LayerBased(Partition::ROUND_ROBIN), LayerBased(Partition::GREEDY),
      LayerBased(Partition::TENSOR_ROUND_ROBIN), MemoryBased(), Striped()};
  return partitions;
}

int MaxShards(const Model& model, const Partition& partition) {
  if (partition.scheme() == Partition::STRIPED) {
    int64_t pieces = 0;
    for (const Tensor& tensor : model.tensors()) pieces += std::max<int64_t>(1, tensor.size / 16);
    return pieces;
  }
  if (partition.scheme() == Partition::MEMORY_BASED) return (model.element_count() + 15) / 16;
  if (partition.placement() == Partition::TENSOR_ROUND_ROBIN) return model.tensors().size();
  int layers = 0;
  for (const Layer& layer : model.layers()) layers += layer.elements > 0;
  return layers;
}

// Checks that shards differ by at most 16 elements, and that each owns one run of the model, cut at
// multiples of 16.
void CheckMemoryBalance(const Plan& plan) {
  const std::vector<int64_t> shares = Shares(plan);
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  CHECK(*most - *least <= 16);
  int64_t cut = 0;
  for (int shard = 0; shard < plan.shards(); ++shard) {
    CHECK(cut % 16 == 0);
    cut += shares[shard];
  }
  CHECK(std::is_sorted(plan.slices().begin(), plan.slices().end(),
                       [](const Slice& a, const Slice& b) { return a.shard < b.shard; }));
}

void CheckWholeUnits(const Model& model, const Plan& plan, const Partition& partition) {
  CHECK(plan.slices().size() == model.tensors().size());
  if (partition.placement() == Partition::TENSOR_ROUND_ROBIN) return;
  for (const Layer& layer : model.layers()) {
    for (int i = 1; i < layer.tensor_count; ++i) {
      CHECK(plan.slices()[layer.first_tensor + i].shard == plan.slices()[layer.first_tensor].shard);
    }
  }
}

TEST_CASE("a plan covers every element once, by slices and by chunks, and keeps its bounds") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const Model model = RandomModel(random);
    for (const Partition& partition : AllPartitions()) {
      const int most = MaxShards(model, partition);
      // Test the limit itself and a random number up to it.
      for (const int shards : {most, 1 + static_cast<int>(random() % most)}) {
        const int64_t chunk_bytes = 64 * (1 + random() % 40);
        CAPTURE(partition.ShortDebugString(), shards, chunk_bytes, model.parameter_count());
        const Plan plan = MustCreate(model, partition, shards, chunk_bytes);
        REQUIRE(plan.shards() == shards);
        CheckSlices(model, plan);
        CheckChunks(model, plan, chunk_bytes);
        if (partition.scheme() == Partition::MEMORY_BASED) {
          CheckMemoryBalance(plan);
        } else if (partition.scheme() == Partition::LAYER_BASED) {
          CheckWholeUnits(model, plan, partition);
        }
        CHECK(MustCreate(model, partition, shards, chunk_bytes).fingerprint() ==
              plan.fingerprint());
      }
      const absl::Status refused = Plan::Create(model, partition, most + 1, 64).status();
      CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
      CHECK_THAT(std::string(refused.message()),
                 Catch::Contains("can fill 1 to " + std::to_string(most) + " shards"));
    }
  }
}

TEST_CASE("memory-based shares are balanced whatever the remainder of units and elements") {
  for (int features = 1; features <= 70; ++features) {
    ModelSpec spec;
    spec.mutable_input()->set_channels(1);
    spec.mutable_input()->set_height(1);
    spec.mutable_input()->set_width(1);
    LayerSpec* layer = spec.add_layer();
    layer->set_name("only");
    layer->mutable_linear()->set_out_features(features);
    layer->mutable_linear()->set_bias(false);
    const Model model = MustCreate(spec);
    for (int shards = 1; shards <= MaxShards(model, MemoryBased()); ++shards) {
      CAPTURE(features, shards);
      const Plan plan = MustCreate(model, MemoryBased(), shards);
      CheckSlices(model, plan);
      CheckMemoryBalance(plan);
    }
  }
}

// Returns the longest time that a shard takes, in elements divided by its rate.
double Longest(const Plan& plan, const std::vector<double>& rates) {
  double longest = 0;
  for (int shard = 0; shard < plan.shards(); ++shard) {
    longest = std::max(longest, plan.shard_parameters(shard) / rates[shard]);
  }
  return longest;
}

TEST_CASE("equal rates give the plan without rates, under every scheme") {
  const Model vgg16 = Builtin("vgg16");
  const Model mlp = Builtin("mnist_mlp");
  for (const Model* model : {&vgg16, &mlp}) {
    for (const Partition& partition : AllPartitions()) {
      for (const int shards : {1, 2, 3, 7, 16, 100, 512}) {
        if (shards > MaxShards(*model, partition)) continue;
        CAPTURE(model->name(), partition.ShortDebugString(), shards);
        const uint64_t even = MustCreate(*model, partition, shards).fingerprint();
        for (const double rate : {0.1, 1.0, 10.0 / 3}) {
          const std::vector<double> rates(shards, rate);
          CHECK(MustCreate(*model, partition, shards, kMebibyte, rates).fingerprint() == even);
        }
      }
    }
  }
}

TEST_CASE("MEMORY_BASED covers every element once, in proportion to the rates, in aligned cuts") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> rate(1, 100);
  const Model vgg16 = Builtin("vgg16");
  for (int round = 0; round < 30; ++round) {
    const int shards = 1 + random() % 64;
    std::vector<double> rates(shards);
    for (double& r : rates) r = rate(random);
    const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
    const Plan plan = MustCreate(vgg16, MemoryBased(), shards, kMebibyte, rates);
    CAPTURE(round, shards);
    CheckSlices(vgg16, plan);
    CheckChunks(vgg16, plan, kMebibyte);
    int64_t cut = 0;
    for (int shard = 0; shard < shards; ++shard) {
      CHECK(cut % 16 == 0);
      cut += plan.shard_parameters(shard);
      const double exact = vgg16.parameter_count() * rates[shard] / sum;
      // Rounding may cost a shard one unit of 16 elements, and its part of the last 15 elements.
      CHECK(plan.shard_parameters(shard) >= exact - 2 * 16);
      CHECK(Longest(plan, rates) * rates[shard] >= exact);
    }
    CHECK(Longest(plan, rates) <= Longest(MustCreate(vgg16, MemoryBased(), shards), rates));
    // The longest time is above the ideal by at most two units on the slowest shard.
    CHECK(Longest(plan, rates) <=
          vgg16.parameter_count() / sum + 32 / *std::min_element(rates.begin(), rates.end()));
  }
}

TEST_CASE(
    "with a shard a quarter as fast, proportional parts take 4/13 of the time of equal ones") {
  const Model vgg16 = Builtin("vgg16");
  const std::vector<double> rates = {10, 2.5, 10, 10};
  const double equal = Longest(MustCreate(vgg16, MemoryBased(), 4), rates);
  const double cut = Longest(MustCreate(vgg16, MemoryBased(), 4, kMebibyte, rates), rates);
  CHECK(cut / equal == Approx(4 * 2.5 / 32.5).epsilon(1e-4));
  const double striped = Longest(MustCreate(vgg16, Striped(), 4, kMebibyte, rates), rates);
  CHECK(striped / equal == Approx(4 * 2.5 / 32.5).epsilon(2e-2));
}

TEST_CASE("a shard that is too slow to own anything is refused by its number") {
  for (const auto& [partition, name] :
       {std::pair(MemoryBased(), "MEMORY_BASED"), std::pair(Striped(), "STRIPED")}) {
    const absl::Status status =
        Plan::Create(Builtin("mnist_mlp"), partition, 3, 4096, {10, 0.001, 10}).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()) ==
          std::string("shard 1 would own nothing under ") + name +
              ", its rate of 0.001 is too small beside the others'; every shard must own "
              "parameters");
  }
}

TEST_CASE("the shares of the VGG-16 plans are the known ones") {
  const Model vgg16 = Builtin("vgg16");
  using Shares64 = std::vector<int64_t>;
  const auto shares = [&](const Partition& partition, int shards) {
    return Shares(MustCreate(vgg16, partition, shards));
  };
  CHECK(shares(LayerBased(Partition::ROUND_ROBIN), 2) == Shares64{24'821'632, 113'535'912});
  CHECK(shares(LayerBased(Partition::ROUND_ROBIN), 4) ==
        Shares64{5'016'576, 105'751'360, 19'805'056, 7'784'552});
  CHECK(shares(LayerBased(Partition::GREEDY), 2) == Shares64{102'764'544, 35'593'000});
  CHECK(shares(LayerBased(Partition::GREEDY), 4) ==
        Shares64{102'764'544, 16'781'312, 9'406'696, 9'404'992});
  CHECK(shares(LayerBased(Partition::TENSOR_ROUND_ROBIN), 4) ==
        Shares64{24'815'296, 6'336, 113'528'832, 7'080});
  CHECK(shares(MemoryBased(), 2) == Shares64{69'178'768, 69'178'776});
  CHECK(shares(MemoryBased(), 4) == Shares64{34'589'392, 34'589'392, 34'589'376, 34'589'384});
}

TEST_CASE("with two shards, tensor_round_robin puts every VGG-16 weight on one of them") {
  const Model vgg16 = Builtin("vgg16");
  const Plan plan = MustCreate(vgg16, LayerBased(Partition::TENSOR_ROUND_ROBIN), 2);
  for (const Slice& slice : plan.slices()) {
    const bool weight = vgg16.tensors()[slice.tensor].name.find("/weight") != std::string::npos;
    CHECK(slice.shard == (weight ? 0 : 1));
  }
  CHECK(Shares(plan) == std::vector<int64_t>{138'344'128, 13'416});
}

TEST_CASE("greedy breaks ties by model order and by the lowest shard") {
  ModelSpec spec;
  spec.mutable_input()->set_channels(4);
  spec.mutable_input()->set_height(1);
  spec.mutable_input()->set_width(1);
  // The layers have 16, 32, 32, 16 and 16 parameters.
  for (const int features : {4, 8, 4, 4, 4}) {
    LayerSpec* layer = spec.add_layer();
    layer->set_name("layer" + std::to_string(spec.layer_size()));
    layer->mutable_linear()->set_out_features(features);
    layer->mutable_linear()->set_bias(false);
  }
  const Plan plan = MustCreate(MustCreate(spec), LayerBased(Partition::GREEDY), 3);
  std::vector<int> shards;
  for (const Slice& slice : plan.slices()) shards.push_back(slice.shard);
  CHECK(shards == std::vector<int>{2, 0, 1, 2, 0});

  // With rates, the fastest shard comes first, and a load counts for its rate.
  const Plan rated =
      MustCreate(MustCreate(spec), LayerBased(Partition::GREEDY), 3, kMebibyte, {10, 20, 40});
  shards.clear();
  for (const Slice& slice : rated.slices()) shards.push_back(slice.shard);
  CHECK(shards == std::vector<int>{0, 2, 1, 2, 2});
}

// These values were computed independently of this program, from the text that is hashed. If they
// change, old and new processes cannot work together.
TEST_CASE("fingerprints stay what they were") {
  const Model mlp = Builtin("mnist_mlp");
  CHECK(MustCreate(mlp, MemoryBased(), 2).fingerprint() == 0x4b4e01f0a1dbf041);
  CHECK(MustCreate(mlp, LayerBased(Partition::ROUND_ROBIN), 2, 65536).fingerprint() ==
        0x0f0b0d6687ca2c6c);
  CHECK(MustCreate(Builtin("vgg16"), LayerBased(Partition::TENSOR_ROUND_ROBIN), 2).fingerprint() ==
        0x2793d9426d5dec71);
}

TEST_CASE("what changes a plan changes its fingerprint") {
  const Model mlp = Builtin("mnist_mlp");
  ModelSpec renamed;
  renamed.mutable_input()->set_channels(784);
  renamed.mutable_input()->set_height(1);
  renamed.mutable_input()->set_width(1);
  for (const int features : {16, 16, 10}) {
    LayerSpec* layer = renamed.add_layer();
    layer->set_name("FC" + std::to_string(renamed.layer_size()));
    layer->mutable_linear()->set_out_features(features);
  }
  const uint64_t base = MustCreate(mlp, MemoryBased(), 2, 4096).fingerprint();
  CHECK(MustCreate(MustCreate(renamed), MemoryBased(), 2, 4096).fingerprint() != base);
  CHECK(MustCreate(mlp, MemoryBased(), 3, 4096).fingerprint() != base);
  CHECK(MustCreate(mlp, MemoryBased(), 2, 8192).fingerprint() != base);
  CHECK(MustCreate(mlp, LayerBased(Partition::GREEDY), 2, 4096).fingerprint() != base);
}

TEST_CASE("an impossible plan is refused with what is allowed") {
  const Model mlp = Builtin("mnist_mlp");
  const auto error = [](const Model& model, const Partition& partition, int shards,
                        int64_t chunk_bytes) {
    const absl::Status status = Plan::Create(model, partition, shards, chunk_bytes).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK_THAT(error(mlp, Partition(), 2, 4096),
             Catch::Contains("is missing, allowed in a plan are LAYER_BASED, MEMORY_BASED and "));
  Partition undecided;
  undecided.set_scheme(Partition::AUTO);
  CHECK_THAT(error(mlp, undecided, 2, 4096), Catch::Contains("the partition scheme is AUTO, "));
  CHECK_THAT(error(mlp, Striped(), 900, 4096),
             Catch::Contains("can fill 1 to 813 shards under STRIPED;"));
  CHECK(error(mlp, LayerBased(Partition::GREEDY), 4, 4096) ==
        "the plan has 4 shards, but the model mnist_mlp can fill 1 to 3 shards under LAYER_BASED "
        "GREEDY; every shard must own parameters (`shard` in the config, --shards of "
        "`evenshard run`)");
  CHECK_THAT(error(mlp, MemoryBased(), 0, 4096),
             Catch::Contains("can fill 1 to 813 shards under MEMORY_BASED;"));
  for (const int64_t chunk_bytes : {-64, 0, 63, 100}) {
    CHECK_THAT(error(mlp, MemoryBased(), 2, chunk_bytes),
               Catch::Contains("chunk_bytes is " + std::to_string(chunk_bytes) +
                               ", it must be a positive multiple of 64"));
  }

  ModelSpec wide;
  wide.mutable_input()->set_channels(1 << 20);
  wide.mutable_input()->set_height(1);
  wide.mutable_input()->set_width(1);
  wide.add_layer()->set_name("wide");
  wide.mutable_layer(0)->mutable_linear()->set_out_features(1 << 10);
  CHECK_THAT(error(MustCreate(wide), MemoryBased(), 2, 64),
             Catch::Contains("chunks, allowed are 16777216; make chunk_bytes larger"));
}

}  // namespace
}  // namespace evenshard
