#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/worker/ring/core/ring_of_rounds.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr char kClipped[] = "update.clip_global_norm=0.5";
constexpr char kNesterov[] = "optimizer={kind: NESTEROV learning_rate: 0.05 weight_decay: 0.01}";

TEST_CASE("the mean of all parts is clipped by its norm, and running statistics are not") {
  for (const std::string& model :
       {std::string(kSmallRingModel), std::string("builtin: \"resnet152\" shrink: 64")}) {
    const bool is_small = model == kSmallRingModel;
    for (const int workers : {2, 3, 5}) {
      INFO(model << ", " << workers << " workers");
      RingOfRounds ring(RingConfigOf(
          workers, model,
          {kNesterov, kClipped, is_small ? "limits.chunk_bytes=256" : "limits.chunk_bytes=4096",
           is_small ? "ring.bucket_bytes=4096" : "ring.bucket_bytes=262144",
           is_small ? "ring.first_bucket_bytes=1024" : "ring.first_bucket_bytes=16384"}));
      RingReference reference(&ring.config(), &ring.plan());
      const std::vector<float> all(workers, 1);
      const int iterations = is_small ? 3 : 1;
      for (int iteration = 0; iteration < iterations; ++iteration) {
        RunIteration(ring, iteration, all, 10 * workers + iteration);
        reference.Update(iteration, all);
        for (int rank = 0; rank < workers; ++rank) {
          RequireSame(ring.worker(rank).parameters, reference.parameters());
        }
      }
      CHECK(reference.clipped() == iterations);
    }
  }
}

TEST_CASE("a step of the clipped mean is as long as the limit") {
  RingOfRounds ring(
      RingConfigOf(3, kSmallRingModel, {"optimizer={kind: SGD learning_rate: 1}", kClipped}));
  const std::vector<float> before = ring.worker(0).parameters;
  RunIteration(ring, 0, {1, 1, 1}, 1);
  double squared = 0;
  for (const Tensor& tensor : ring.config().model().tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      squared += std::pow(ring.worker(1).parameters[i] - before[i], 2);
    }
  }
  CHECK(std::sqrt(squared) == Approx(0.5).epsilon(1e-4));
}

TEST_CASE("a mean below the limit is left alone") {
  RingOfRounds clipped(
      RingConfigOf(3, kSmallRingModel, {kNesterov, "update.clip_global_norm=1000"}));
  RingOfRounds plain(RingConfigOf(3, kSmallRingModel, {kNesterov}));
  for (int iteration = 0; iteration < 2; ++iteration) {
    RunIteration(clipped, iteration, {1, 1, 1}, 1);
    RunIteration(plain, iteration, {1, 1, 1}, 1);
  }
  RequireSame(clipped.worker(2).parameters, plain.worker(0).parameters);
}

TEST_CASE("the norm is that of the workers that contribute") {
  RingOfRounds ring(RingConfigOf(4, kSmallRingModel, {kNesterov, kClipped}));
  RingReference reference(&ring.config(), &ring.plan());
  const std::vector<std::vector<float>> all_weights = {
      {1, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 0, 0}, {2, 1, 0, 4}};
  for (int iteration = 0; iteration < static_cast<int>(all_weights.size()); ++iteration) {
    INFO("iteration " << iteration);
    RunIteration(ring, iteration, all_weights[iteration], 7);
    reference.Update(iteration, all_weights[iteration]);
    for (int rank = 0; rank < 4; ++rank) {
      RequireSame(ring.worker(rank).parameters, reference.parameters());
    }
  }
  CHECK(reference.clipped() == 3);
}

TEST_CASE("workers whose part is empty learn the norm and pass it on") {
  constexpr char kTiny[] = R"(
    input { channels: 4 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 2 } })";
  RingOfRounds ring(RingConfigOf(5, kTiny, {kNesterov, kClipped}));
  int empty = 0;
  for (int rank = 0; rank < 5; ++rank) empty += ring.plan().part_size(rank) == 0 ? 1 : 0;
  REQUIRE(empty == 3);
  RingReference reference(&ring.config(), &ring.plan());
  for (int iteration = 0; iteration < 4; ++iteration) {
    RunIteration(ring, iteration, {1, 1, 1, 1, 1}, 20 + iteration);
    reference.Update(iteration, {1, 1, 1, 1, 1});
    for (int rank = 0; rank < 5; ++rank) {
      RequireSame(ring.worker(rank).parameters, reference.parameters());
    }
  }
  CHECK(reference.clipped() == 4);
}

TEST_CASE("a norm that is too large to be told ends the run everywhere") {
  RingOfRounds ring(RingConfigOf(3, kSmallRingModel, {"update.clip_global_norm=1e-6"}));
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(ring.Begin(rank, 0).ok());
    ring.worker(rank).gradients[rank] = 1e37f;
    REQUIRE(ring.PushAll(rank).ok());
  }
  for (const absl::Status& outcome : ring.DeliverAll(1)) {
    CHECK(outcome.code() == absl::StatusCode::kOutOfRange);
    CHECK_THAT(std::string(outcome.message()),
               Contains("the norm of the mean gradient of iteration 0 is too large to be clipped"));
  }
}

TEST_CASE("with clipping a layer cannot be waited for before all are pushed") {
  RingOfRounds ring(RingConfigOf(2, kSmallRingModel, {kClipped}));
  REQUIRE(ring.Begin(0, 0).ok());
  REQUIRE(ring.worker(0).round->Push(4).ok());
  CHECK(ring.worker(0).round->AwaitLayer(4).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("squares that cannot come are refused") {
  const auto refusal_of = [](uint32_t above_plan, uint64_t iteration, size_t bytes,
                             const std::vector<std::string>& overrides) {
    RingOfRounds ring(RingConfigOf(3, kSmallRingModel, overrides));
    REQUIRE(ring.Begin(0, 0).ok());
    REQUIRE(ring.PushAll(0).ok());
    const std::vector<char> data(bytes);
    const auto chunk = static_cast<uint32_t>(ring.plan().segments().size()) + above_plan;
    const absl::Status taken = ring.worker(0).round->TakeGathered(
        {.header = {.iteration = iteration, .chunk = chunk}, .data = {{data.data(), bytes}}});
    CHECK(taken == ring.worker(0).round->failure());
    return std::string(taken.message());
  };
  CHECK_THAT(refusal_of(0, 0, 32, {kClipped}), Contains("no missing part of the gradient's norm"));
  CHECK_THAT(refusal_of(3, 0, 32, {kClipped}), Contains("no missing part of the gradient's norm"));
  CHECK_THAT(refusal_of(1, 0, 31, {kClipped}), Contains("no missing part of the gradient's norm"));
  CHECK_THAT(refusal_of(1, 1, 32, {kClipped}), Contains("which cannot come in iteration 0"));
  CHECK_THAT(refusal_of(1, 0, 32, {}), Contains("worker 2 sent chunk "));
  CHECK(refusal_of(1, 0, 32, {kClipped}).empty());
}

}  // namespace
}  // namespace evenshard
