#ifndef EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_PLAN_FIXTURE_H_
#define EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_PLAN_FIXTURE_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "common/placement/plan/plan.h"
#include "proto/config.pb.h"
#include "tests/common/placement/plan/model_fixture.h"

// Models, partitions and the checks that every plan must pass.

namespace evenshard {

inline constexpr int64_t kMebibyte = 1 << 20;

inline Partition MemoryBased() {
  Partition partition;
  partition.set_scheme(Partition::MEMORY_BASED);
  return partition;
}

inline Partition Striped() {
  Partition partition;
  partition.set_scheme(Partition::STRIPED);
  return partition;
}

inline Partition LayerBased(Partition::Placement placement) {
  Partition partition;
  partition.set_scheme(Partition::LAYER_BASED);
  partition.set_placement(placement);
  return partition;
}

inline Model MustCreate(const ModelSpec& spec) {
  absl::StatusOr<Model> model = Model::Create(spec);
  REQUIRE(model.status().ToString() == "OK");
  return *std::move(model);
}

inline Plan MustCreate(const Model& model, const Partition& partition, int shards,
                       int64_t chunk_bytes = kMebibyte, const std::vector<double>& rates = {}) {
  absl::StatusOr<Plan> plan = Plan::Create(model, partition, shards, chunk_bytes, rates);
  REQUIRE(plan.status().ToString() == "OK");
  return *std::move(plan);
}

// Returns a model of small layers of many sizes, with and without parameters and biases.
inline Model RandomModel(std::mt19937& random) {
  ModelSpec spec;
  spec.mutable_input()->set_channels(1 + random() % 50);
  spec.mutable_input()->set_height(1);
  spec.mutable_input()->set_width(1);
  const int layers = 1 + random() % 8;
  for (int i = 0; i < layers; ++i) {
    LayerSpec* layer = spec.add_layer();
    layer->set_name("layer" + std::to_string(i));
    const int kind = i == 0 ? 0 : random() % 4;
    if (kind <= 1) {
      layer->mutable_linear()->set_out_features(1 + random() % 50);
      layer->mutable_linear()->set_bias(random() % 2 == 0);
    } else if (kind == 2) {
      layer->mutable_batch_norm();
    } else {
      layer->mutable_relu();
    }
  }
  return MustCreate(spec);
}

inline std::vector<int64_t> Shares(const Plan& plan) {
  std::vector<int64_t> shares;
  for (int shard = 0; shard < plan.shards(); ++shard) {
    shares.push_back(plan.shard_parameters(shard));
  }
  return shares;
}

// Checks that slices cover every element of the model once, in model order, and that they are laid
// out in that order in the memory of each shard.
inline void CheckSlices(const Model& model, const Plan& plan) {
  std::vector<int64_t> parameters(plan.shards(), 0), buffers(plan.shards(), 0);
  size_t next = 0;
  for (size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    for (int64_t covered = 0; covered < model.tensors()[tensor].size; ++next) {
      REQUIRE(next < plan.slices().size());
      const Slice& slice = plan.slices()[next];
      REQUIRE(slice.tensor == static_cast<int>(tensor));
      REQUIRE(slice.begin == covered);
      REQUIRE(slice.size > 0);
      REQUIRE((slice.shard >= 0 && slice.shard < plan.shards()));
      CHECK(slice.shard_offset == buffers[slice.shard]);
      CHECK(slice.shard_offset % 16 == 0);
      parameters[slice.shard] += slice.size;
      buffers[slice.shard] += (slice.size + 15) / 16 * 16;
      covered += slice.size;
      REQUIRE(covered <= model.tensors()[tensor].size);
    }
  }
  CHECK(next == plan.slices().size());
  for (int shard = 0; shard < plan.shards(); ++shard) {
    CHECK(parameters[shard] > 0);
    CHECK(plan.shard_parameters(shard) == parameters[shard]);
    CHECK(plan.shard_buffer_size(shard) == buffers[shard]);
  }
}

// Checks that every slice is cut into chunks of the largest size, with ids in order.
inline void CheckChunks(const Model& model, const Plan& plan, int64_t chunk_bytes) {
  std::vector<std::vector<uint32_t>> of_shard(plan.shards()), of_tensor(model.tensors().size());
  uint32_t next = 0;
  for (const Slice& slice : plan.slices()) {
    for (int64_t covered = 0; covered < slice.size; ++next) {
      REQUIRE(next < plan.chunks().size());
      const Chunk& chunk = plan.chunks()[next];
      CHECK(chunk.id == next);
      CHECK(chunk.tensor == slice.tensor);
      CHECK(chunk.shard == slice.shard);
      CHECK(chunk.begin == slice.begin + covered);
      CHECK(chunk.shard_offset == slice.shard_offset + covered);
      CHECK(chunk.shard_offset % 16 == 0);
      CHECK(chunk.model_offset == model.tensors()[slice.tensor].offset + chunk.begin);
      CHECK(chunk.model_offset + chunk.size <= model.buffer_size());
      REQUIRE(chunk.size > 0);
      covered += chunk.size;
      REQUIRE(covered <= slice.size);
      CHECK(chunk.size * 4 <= chunk_bytes);
      // Only the last chunk of a slice is smaller.
      CHECK((chunk.size * 4 == chunk_bytes || covered == slice.size));
      of_shard[chunk.shard].push_back(next);
      of_tensor[chunk.tensor].push_back(next);
    }
  }
  CHECK(next == plan.chunks().size());
  for (int shard = 0; shard < plan.shards(); ++shard) {
    CHECK(plan.chunks_of_shard(shard) == absl::MakeConstSpan(of_shard[shard]));
  }
  for (size_t tensor = 0; tensor < of_tensor.size(); ++tensor) {
    CHECK(plan.chunks_of_tensor(tensor) == absl::MakeConstSpan(of_tensor[tensor]));
  }
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_PLAN_FIXTURE_H_
