// SSP over real gRPC connections: what each worker reads, judged by the recorded history.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/await.h"
#include "tests/testing/cluster.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

// With this rule a worker's gradients are counted where only they are not 0.
PlannedConfig CountingConfig(int workers, int staleness, const std::string& more) {
  return MustParse(kSmallConfig, {absl::StrCat("workers=", workers), "update.policy=SSP",
                                  absl::StrCat("update.staleness=", staleness),
                                  "optimizer={kind: SGD learning_rate: 1}", more});
}

bool BelongsTo(int64_t element, int rank, int workers) { return element % workers == rank; }

std::vector<float> CountingGradient(const PlannedConfig& config, int rank) {
  std::vector<float> gradient(config.model().buffer_size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = BelongsTo(static_cast<int64_t>(i), rank, config.workers()) ? 1 : 0;
  }
  return gradient;
}

// How many updates of a worker are in parameters: the fewest and the most in any element.
struct Seen {
  int64_t least = INT64_MAX;
  int64_t most = 0;
};
Seen UpdatesOf(int rank, const PlannedConfig& config, const std::vector<float>& start,
               const std::vector<float>& parameters) {
  Seen seen;
  for (const Tensor& tensor : config.model().tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      if (!BelongsTo(i, rank, config.workers())) continue;
      const auto updates = static_cast<int64_t>(std::lround(start[i] - parameters[i]));
      seen.least = std::min(seen.least, updates);
      seen.most = std::max(seen.most, updates);
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("under SSP every read has what the bound promises") {
  constexpr int kWorkers = 4;
  constexpr int kIterations = 30;
  const int staleness = GENERATE(1, 3);
  const std::string schedule = GENERATE("FULL", "SEQUENTIAL");
  CAPTURE(staleness, schedule);
  TestCluster cluster(CountingConfig(kWorkers, staleness, "exchange.schedule=" + schedule));
  const PlannedConfig& config = cluster.config();
  const std::vector<float> start = cluster.Parameters();
  std::vector<std::atomic<int>> clocks(kWorkers);  // the exchanges that each has completed
  std::atomic<int> wrong{0};
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(config.model().buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    const std::vector<float> gradient = CountingGradient(config, rank);
    for (int i = 0; i < kIterations && status.ok(); ++i) {
      if (rank == 0) {
        // It is as slow as can be: all others get as far ahead as they may.
        AwaitTrue([&] {
          for (int other = 1; other < kWorkers; ++other) {
            if (clocks[other] < std::min(i + staleness, kIterations)) return false;
          }
          return true;
        });
      }
      status = exchange.PushPull(i, gradient, absl::MakeSpan(parameters));
      if (!status.ok()) break;
      for (int other = 0; other < kWorkers; ++other) {
        const Seen seen = UpdatesOf(other, config, start, parameters);
        const int64_t least = other == rank ? i + 1 : i + 1 - staleness;
        const int64_t most = other == rank ? i + 1 : i + 1 + staleness + 1;
        if (seen.least < least || seen.most > most) ++wrong;
      }
      clocks[rank] = i + 1;
      if (clocks[rank] > clocks[0] + 1 + staleness) ++wrong;
    }
    return status;
  }));
  CHECK(wrong == 0);
  for (int rank = 0; rank < kWorkers; ++rank) {
    const Seen seen = UpdatesOf(rank, config, start, cluster.Parameters());
    CHECK(seen.least == kIterations);
    CHECK(seen.most == kIterations);
  }
}

TEST_CASE("under SSP a worker that comes back begins where the slowest is") {
  constexpr int kStaleness = 1;
  TestCluster cluster(CountingConfig(3, kStaleness, "exchange.schedule=BACKWARD"));
  const PlannedConfig& config = cluster.config();
  const std::vector<float> start = cluster.Parameters();
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<std::vector<float>> parameters(3, std::vector<float>(config.model().buffer_size()));
  for (int rank = 0; rank < 3; ++rank) {
    auto exchange = cluster.Connect(rank);
    REQUIRE(exchange.ok());
    exchanges.push_back(*std::move(exchange));
    REQUIRE(exchanges[rank]->Pull(absl::MakeSpan(parameters[rank])).ok());
  }
  const auto push = [&](int rank, int iteration) {
    REQUIRE(
        exchanges[rank]
            ->PushPull(iteration, CountingGradient(config, rank), absl::MakeSpan(parameters[rank]))
            .ok());
  };
  for (const int rank : {0, 1, 2}) push(rank, 0);
  REQUIRE(exchanges[2]->Leave(absl::OkStatus()).ok());
  for (int i = 1; i < 10; ++i) {
    for (const int rank : {0, 1}) push(rank, i);
  }
  auto back = cluster.Connect(2);
  REQUIRE(back.ok());
  exchanges[2] = *std::move(back);
  REQUIRE(exchanges[2]->Pull(absl::MakeSpan(parameters[2])).ok());
  CHECK(exchanges[2]->next_iteration() == 10);
  CHECK(UpdatesOf(0, config, start, parameters[2]).least == 10);
  CHECK(UpdatesOf(1, config, start, parameters[2]).least == 10);
  CHECK(UpdatesOf(2, config, start, parameters[2]).most == 1);
  // It counts again: nobody gets further ahead of it than the bound.
  for (const int rank : {0, 1}) push(rank, 10);
  push(2, 10);
  for (const int rank : {0, 1, 2}) push(rank, 11);
  for (const auto& exchange : exchanges) REQUIRE(exchange->Leave(absl::OkStatus()).ok());
  CHECK(UpdatesOf(2, config, start, cluster.Parameters()).least == 3);
}

}  // namespace evenshard
