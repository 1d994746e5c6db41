#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/placement/plan/plan.h"
#include "tests/common/placement/plan/plan_fixture.h"

namespace evenshard {
namespace {

// Returns the least elements of a slice that is not a whole tensor.
int64_t LeastPiece(const Model& model, int shards, int64_t chunk_bytes) {
  return std::min(chunk_bytes / 8, (model.element_count() + 4 * shards - 1) / (4 * shards));
}

// Checks what plan.h states for STRIPED: after every tensor, every shard's load is at most `above`
// over its share and at most `below` under it, and slices are few.
void CheckStripes(const Model& model, const Plan& plan, int64_t chunk_bytes,
                  std::vector<double> rates) {
  const bool equal = rates.empty();
  if (equal) rates.assign(plan.shards(), 1);
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  const double above = chunk_bytes / 4 + 48;
  double harmonic = 0;
  for (int i = 2; i <= plan.shards(); ++i) harmonic += 1.0 / i;
  const double below = above * (equal ? 1 : std::max(1.0, harmonic));

  const int64_t least = LeastPiece(model, plan.shards(), chunk_bytes);
  std::vector<int64_t> load(plan.shards());
  int64_t prefix = 0;
  size_t next = 0;
  for (size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    const int64_t size = model.tensors()[tensor].size;
    prefix += size;
    int last_shard = -1;
    for (; next < plan.slices().size(); ++next) {
      const Slice& slice = plan.slices()[next];
      if (slice.tensor != static_cast<int>(tensor)) break;
      const bool is_piece = slice.size < size;
      // Shards ascend within a tensor, so that each has at most one slice of it.
      REQUIRE((slice.begin % 16 == 0 && slice.shard > last_shard));
      REQUIRE((!is_piece || slice.size >= least));
      last_shard = slice.shard;
      load[slice.shard] += slice.size;
    }
    double most = 0;
    double least_of_all = 0;
    for (int shard = 0; shard < plan.shards(); ++shard) {
      const double surplus = load[shard] - prefix * (rates[shard] / sum);
      most = std::max(most, surplus);
      least_of_all = std::min(least_of_all, surplus);
    }
    CAPTURE(tensor);
    REQUIRE(most <= above);
    REQUIRE(least_of_all >= -below);
  }
  CHECK(static_cast<int64_t>(plan.slices().size()) <=
        static_cast<int64_t>(model.tensors().size()) + model.element_count() / least);
}

std::vector<double> RandomRates(std::mt19937& random, int shards) {
  std::vector<double> rates(shards);
  // Rates of one order of magnitude, or one or two shards that are much slower or faster.
  const bool spread = random() % 2 == 0;
  for (double& rate : rates) rate = spread ? 1 + random() % 1000 / 100.0 : 10;
  for (int i = 0; i < 2; ++i) rates[random() % shards] = 1 + random() % 40;
  return rates;
}

TEST_CASE("stripes of drawn small models keep their bounds for every prefix") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const Model model = RandomModel(random);
    const int most = static_cast<int>(std::min<int64_t>(64, model.element_count() / 64));
    const int shards = 1 + random() % std::max(1, most);
    const int64_t chunk_bytes = 64 * (1 + random() % 40);
    CAPTURE(round, shards, chunk_bytes, model.element_count());
    const Plan plan = MustCreate(model, Striped(), shards, chunk_bytes);
    CheckSlices(model, plan);
    CheckStripes(model, plan, chunk_bytes, {});
    CHECK(MustCreate(model, Striped(), shards, chunk_bytes).fingerprint() == plan.fingerprint());

    // A model of a few tensors may have no slice for a slow shard.
    const std::vector<double> rates = RandomRates(random, shards);
    const absl::StatusOr<Plan> rated = Plan::Create(model, Striped(), shards, chunk_bytes, rates);
    if (!rated.ok()) {
      CHECK_THAT(std::string(rated.status().message()), Catch::Contains("would own nothing"));
      continue;
    }
    CheckSlices(model, *rated);
    CheckStripes(model, *rated, chunk_bytes, rates);
  }
}

TEST_CASE("stripes of the builtin models keep their bounds for every prefix") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const std::string name : {"vgg16", "resnet50", "mnist_mlp"}) {
    const Model model = Builtin(name);
    for (int round = 0; round < 12; ++round) {
      const int shards = 1 + random() % (name == "mnist_mlp" ? 20 : 512);
      const int64_t chunk_bytes = 64 * (1 + random() % (1 << 14));
      CAPTURE(name, shards, chunk_bytes);
      const Plan plan = MustCreate(model, Striped(), shards, chunk_bytes);
      CheckSlices(model, plan);
      CheckChunks(model, plan, chunk_bytes);
      CheckStripes(model, plan, chunk_bytes, {});
      const std::vector<double> rates = RandomRates(random, shards);
      const absl::StatusOr<Plan> rated = Plan::Create(model, Striped(), shards, chunk_bytes, rates);
      if (!rated.ok()) continue;  // as above
      CheckSlices(model, *rated);
      CheckStripes(model, *rated, chunk_bytes, rates);
    }
  }
}

TEST_CASE("every layer of VGG-16 that is worth it is cut for all shards") {
  const Model vgg16 = Builtin("vgg16");
  const int64_t chunk_bytes = 64 << 10;
  const Plan plan = MustCreate(vgg16, Striped(), 8, chunk_bytes);
  std::vector<std::vector<int64_t>> sizes(vgg16.tensors().size());
  for (const Slice& slice : plan.slices()) sizes[slice.tensor].push_back(slice.size);
  for (size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    const int64_t size = vgg16.tensors()[tensor].size;
    CAPTURE(vgg16.tensors()[tensor].name, size);
    if (size < chunk_bytes / 4) CHECK(sizes[tensor].size() == 1);
    if (size < 16 * chunk_bytes / 4) continue;
    REQUIRE(sizes[tensor].size() == 8);
    for (const int64_t piece : sizes[tensor]) {
      CHECK(std::abs(piece - size / 8) <= 2 * (chunk_bytes / 4 + 48));
    }
  }
}

TEST_CASE("stripes fill as many shards as there are pieces of 16 elements, and not one more") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const Model model = RandomModel(random);
    int most = 0;
    for (const Tensor& tensor : model.tensors()) {
      most += static_cast<int>(std::max<int64_t>(1, tensor.size / 16));
    }
    const int shards = 1 + random() % most;
    CAPTURE(round, most, shards);
    CheckSlices(model, MustCreate(model, Striped(), most, kMebibyte));
    CheckSlices(model, MustCreate(model, Striped(), shards, kMebibyte));
    const absl::Status refused = Plan::Create(model, Striped(), most + 1, kMebibyte).status();
    CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(refused.message()),
               Catch::Contains("can fill 1 to " + std::to_string(most) + " shards under STRIPED"));
  }
}

}  // namespace
}  // namespace evenshard
