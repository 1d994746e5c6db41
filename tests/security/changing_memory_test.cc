// Memory that a worker and the shards share, and that changes while they use it, as a broken or
// hostile worker could do. The shards run in this process.

#include <algorithm>
#include <atomic>
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

// What appears in the memory of chunk 0 of worker 0 while it trains.
struct Scribble {
  float value;
  int64_t period;  // the value is there in one of so many stores, and otherwise 0.5
};

// Writes as another process would: through mappings of its own.
class Scribbler {
 public:
  Scribbler(const TestCluster& cluster, const Buffers& buffers, Scribble scribble)
      : gradients_(Mapped(buffers.gradients)), parameters_(Mapped(buffers.parameters)) {
    const Chunk& chunk = cluster.config().plan().chunks()[0];
    thread_ = std::jthread([this, chunk, scribble](const std::stop_token& stop) {
      for (int64_t round = 0; !stop.stop_requested(); ++round) {
        const int64_t at = chunk.model_offset + round / scribble.period % chunk.size;
        const float value = round % scribble.period == 0 ? scribble.value : 0.5f;
        std::atomic_ref(gradients_.data()[at]).store(value, std::memory_order_relaxed);
        std::atomic_ref(parameters_.data()[at]).store(value, std::memory_order_relaxed);
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

struct Disturbed {
  std::vector<absl::Status> outcomes;  // of the workers
  std::vector<float> masters;
  std::vector<float> received;  // by worker 1
};
// Trains two workers, of whom the first one's memory changes meanwhile if `scribble` is given.
Disturbed TrainDisturbed(const PlannedConfig& config, std::optional<Scribble> scribble) {
  constexpr int kDisturbedIterations = 300;
  TestCluster cluster(config);
  Disturbed disturbed;
  disturbed.outcomes.assign(2, absl::UnknownError("did not run"));
  std::vector<Buffers> buffers;
  for (int rank = 0; rank < 2; ++rank) buffers.push_back(MakeBuffers(cluster));
  std::optional<Scribbler> scribbler;
  if (scribble.has_value()) scribbler.emplace(cluster, buffers[0], *scribble);
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
  Disturbed disturbed = TrainDisturbed(config, Scribble{.value = 1e6f, .period = 2});
  RequireAllOk(disturbed.outcomes);
  CHECK(disturbed.received == disturbed.masters);
  CHECK(disturbed.masters != calm.masters);
  const Chunk& chunk = config.plan().chunks()[0];
  std::copy_n(calm.masters.begin() + chunk.model_offset, chunk.size,
              disturbed.masters.begin() + chunk.model_offset);
  CHECK(disturbed.masters == calm.masters);
}

// It is there so briefly that it is as likely to be met by the check of the push as after it.
TEST_CASE("a value that is not finite only after it was looked at does not go on unnoticed") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  const PlannedConfig config = MustParse(kSmallConfig, {"update.policy=" + policy});
  for (int run = 0; run < 5; ++run) {
    const Disturbed disturbed = TrainDisturbed(config, Scribble{.value = NAN, .period = 100});
    bool is_ok = true;
    for (const absl::Status& outcome : disturbed.outcomes) {
      INFO(outcome);
      CHECK((outcome.ok() || KindOf(outcome) == ErrorDetail::RUN_FAILED));
      is_ok = is_ok && outcome.ok();
    }
    CHECK((!is_ok || std::all_of(disturbed.masters.begin(), disturbed.masters.end(),
                                 [](float value) { return std::isfinite(value); })));
  }
}

}  // namespace
}  // namespace evenshard
