// What a worker makes of gradients and losses that are not finite.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tests/testing/captured_log.h"
#include "tests/testing/cluster.h"
#include "tests/worker/training/whole_workers.h"
#include "worker/compute/backend.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Gradients are 0, or NaN at some iterations; so are losses at some.
struct Divergence {
  std::set<int64_t> gradients = {};
  std::set<int64_t> losses = {};
};

class DivergingBackend final : public ComputeBackend {
 public:
  explicit DivergingBackend(Divergence divergence) : divergence_(std::move(divergence)) {}

  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    gradients[0] = divergence_.gradients.count(iteration) > 0 ? kNan : 0;
    return BatchResult{.loss = divergence_.losses.count(iteration) > 0 ? kNan : 1};
  }
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch, absl::Span<const float>) override {
    return BatchResult{.loss = 1};
  }

 private:
  const Divergence divergence_;
};

// Runs one worker whose gradients and losses are not finite at some of 10 iterations.
Result RunDiverging(const TestCluster& cluster, const Divergence& divergence) {
  const RealClock clock;
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .create_backend = [&](const PlannedConfig&, const BackendOptions&)
                                      -> absl::StatusOr<std::unique_ptr<ComputeBackend>> {
                                    return std::make_unique<DivergingBackend>(divergence);
                                  }});
  REQUIRE(trainer.ok());
  return (*trainer)->Run();
}

}  // namespace

TEST_CASE("REJECT: a gradient that is not finite ends the run and is named") {
  TestCluster cluster(MustParse(kDigits, {"workers=2", "optimizer.learning_rate=1e30"}));
  for (const Result& result : RunAll(cluster)) {
    CHECK_THAT(Message(result), Contains("pushed a gradient that is not finite at iteration"));
  }
}

TEST_CASE("SKIP: gradients that are not finite are left out, counted, and warned of") {
  TestCluster cluster(MustParse(kDigits, {"workers=1", "update.non_finite=SKIP"}));
  const CapturedLog log;
  const Result result = RunDiverging(cluster, {.gradients = {1, 3, 4, 5, 8}});
  RequireAllOk({result});
  CHECK(result->iterations == 10);
  CHECK(result->skipped_iterations == 5);
  for (int shard = 0; shard < 2; ++shard) {
    const ShardStats stats = cluster.server(shard).shard().Stats();
    CHECK(stats.skipped_pushes() == 5 * stats.chunks());
  }
  // The first one, and whenever their number has doubled.
  const std::string text = log.text();
  CHECK_THAT(text, Contains("warning: iteration 1: the gradient is not finite and is left out "
                            "(update.non_finite: SKIP): 1 of 2 so far") &&
                       Contains(": 2 of 4 so far") && Contains(": 4 of 6 so far"));
  CHECK_THAT(text, !Contains(": 3 of") && !Contains(": 5 of"));
}

TEST_CASE("SKIP: a worker that left out more than half of its gradients fails") {
  TestCluster cluster(MustParse(kDigits, {"workers=1", "update.non_finite=SKIP"}));
  const Result result = RunDiverging(cluster, {.gradients = {0, 1, 2, 3, 4, 5}});
  CHECK(result.status() ==
        absl::FailedPreconditionError("the training has diverged: 6 of 10 gradients were not "
                                      "finite and were left out"));
  CHECK_THAT(cluster.server(0).shard().Stats().failure(), Contains("6 of 10 gradients"));
}

TEST_CASE("SKIP: a run that diverges fails, and its parameters stay what they were") {
  TestCluster cluster(
      MustParse(kDigits, {"workers=2", "optimizer.learning_rate=1e30", "update.non_finite=SKIP"}));
  for (const Result& result : RunAll(cluster)) {
    CHECK_THAT(Message(result), Contains("gradients were not finite and were left out"));
  }
  for (const float parameter : cluster.Parameters()) REQUIRE_FALSE(std::isnan(parameter));
}

TEST_CASE("a loss that is not finite is warned of, first and whenever their number has doubled") {
  TestCluster cluster(MustParse(kDigits, {"workers=1"}));
  const CapturedLog log;
  RequireAllOk({RunDiverging(cluster, {.losses = {2, 3, 4}})});
  const std::string text = log.text();
  CHECK_THAT(text, Contains("warning: iteration 2: the loss is nan: 1 of 3 so far") &&
                       Contains("iteration 3: the loss is nan: 2 of 4 so far") &&
                       !Contains("iteration 4: the loss"));
}

TEST_CASE("SKIP: a gradient that is finite but beyond the range of float16 is left out too") {
  for (const std::string encoding : {"FLOAT16", "BFLOAT16"}) {
    CAPTURE(encoding);
    TestCluster cluster(
        MustParse(kDigits, {"workers=1", "optimizer.learning_rate=1e8", "update.non_finite=SKIP",
                            "training.iterations=3", "exchange.gradient_encoding=" + encoding}));
    const Result result = RunAll(cluster)[0];
    CHECK(result.ok() == (encoding == "BFLOAT16"));
    CHECK((cluster.server(0).shard().Stats().skipped_pushes() > 0) == (encoding == "FLOAT16"));
    for (const float parameter : cluster.Parameters()) REQUIRE(std::isfinite(parameter));
  }
}

}  // namespace evenshard
