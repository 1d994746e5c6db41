// Memory that a worker and the shards share, and that changes while they use it, as a broken or
// hostile worker could do. The shards run in this process.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error_kind.h"
#include "common/base/float_buffer.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

using Buffers = Exchange::Buffers;

Buffers MakeBuffers(const TestCluster& cluster) {
  absl::StatusOr<Buffers> buffers =
      Exchange::AllocateBuffers(cluster.config(), cluster.addresses());
  INFO(buffers.status());
  REQUIRE(buffers.ok());
  return *std::move(buffers);
}

// Changes the memory of chunk 0 of worker 0, as another process would: through mappings of its own.
class Scribbler {
 public:
  Scribbler(const TestCluster& cluster, const Buffers& buffers, float value)
      : gradients_(Mapped(buffers.gradients)), parameters_(Mapped(buffers.parameters)) {
    const Chunk& chunk = cluster.config().plan().chunks()[0];
    thread_ = std::jthread([this, chunk, value](const std::stop_token& stop) {
      for (int64_t round = 0; !stop.stop_requested(); ++round) {
        const int64_t at = chunk.model_offset + round % chunk.size;
        gradients_.data()[at] = round % 3 == 0 ? value : 0.5f;
        parameters_.data()[at] = value;
      }
    });
  }

 private:
  static FloatBuffer Mapped(const FloatBuffer& buffer) {
    absl::StatusOr<FloatBuffer> mapped =
        FloatBuffer::Map(buffer.place(), static_cast<int64_t>(buffer.span().size()));
    INFO(mapped.status());
    REQUIRE(mapped.ok());
    return *std::move(mapped);
  }

  FloatBuffer gradients_;
  FloatBuffer parameters_;
  std::jthread thread_;  // the first to be destroyed
};

// Trains two workers, of whom the first one's memory changes meanwhile if `value` is given. Returns
// their outcomes, the masters, and what worker 1 has received.
struct Disturbed {
  std::vector<absl::Status> outcomes;
  std::vector<float> masters;
  std::vector<float> received;
};
Disturbed TrainDisturbed(const PlannedConfig& config, std::optional<float> value) {
  constexpr int kDisturbedIterations = 300;
  TestCluster cluster(config);
  Disturbed disturbed;
  disturbed.outcomes.assign(2, absl::UnknownError("did not run"));
  std::vector<Buffers> buffers;
  for (int rank = 0; rank < 2; ++rank) buffers.push_back(MakeBuffers(cluster));
  std::optional<Scribbler> scribbler;
  if (value.has_value()) scribbler.emplace(cluster, buffers[0], *value);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto exchange = Exchange::Connect({.config = &config,
                                         .rank = rank,
                                         .addresses = cluster.addresses(),
                                         .buffers = &buffers[rank]});
      absl::Status status = exchange.status();
      if (status.ok()) status = (*exchange)->Pull(buffers[rank].parameters.span());
      for (int i = 0; i < kDisturbedIterations && status.ok(); ++i) {
        const std::vector<float> gradient = TestGradient(config.model(), rank, i);
        std::copy(gradient.begin(), gradient.end(), buffers[rank].gradients.data());
        status = (*exchange)->PushPull(i, buffers[rank].gradients.span(),
                                       buffers[rank].parameters.span());
      }
      if (exchange.ok()) (*exchange)->Leave(status).IgnoreError();
      disturbed.outcomes[rank] = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  disturbed.masters = cluster.Parameters();
  const absl::Span<const float> received = buffers[1].parameters.span();
  disturbed.received.assign(received.begin(), received.end());
  return disturbed;
}

TEST_CASE("memory that changes during the exchange spoils its own chunk and nothing else") {
  const PlannedConfig config = MustParse(kSmallConfig, {"update.deterministic=true"});
  const Disturbed calm = TrainDisturbed(config, std::nullopt);
  RequireAllOk(calm.outcomes);
  Disturbed disturbed = TrainDisturbed(config, 1e6f);
  RequireAllOk(disturbed.outcomes);
  CHECK(disturbed.received == disturbed.masters);
  CHECK(disturbed.masters != calm.masters);
  const Chunk& chunk = config.plan().chunks()[0];
  std::copy_n(calm.masters.begin() + chunk.model_offset, chunk.size,
              disturbed.masters.begin() + chunk.model_offset);
  CHECK(disturbed.masters == calm.masters);
}

TEST_CASE("a value that is not finite only after it was looked at gets into no parameters") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  const PlannedConfig config = MustParse(kSmallConfig, {"update.policy=" + policy});
  const Disturbed disturbed = TrainDisturbed(config, NAN);
  for (const absl::Status& outcome : disturbed.outcomes) {
    INFO(outcome);
    CHECK((outcome.ok() || KindOf(outcome) == ErrorDetail::RUN_FAILED));
  }
  CHECK(std::all_of(disturbed.masters.begin(), disturbed.masters.end(),
                    [](float value) { return std::isfinite(value); }));
}

}  // namespace
}  // namespace evenshard
