#ifndef EVENSHARD_TESTS_WORKER_RING_GRPC_TEST_RING_H_
#define EVENSHARD_TESTS_WORKER_RING_GRPC_TEST_RING_H_

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "tests/testing/scratch_folder.h"
#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {

// The network of kSmallConfig (tests/testing/cluster.h).
inline constexpr char kRingConfig[] = R"(
  model {
    input { channels: 40 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 50 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 30 } }
    layer { relu {} }
    layer { name: "fc3" linear { out_features: 10 } }
  }
  topology: RING
  update { policy: SYNC }
  training { iterations: 1 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 512 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
)";

// Lets a test act as the workers of a ring, in this process, with unix sockets.
class TestRing {
 public:
  explicit TestRing(int workers, std::vector<std::string> overrides = {},
                    const char* text = kRingConfig)
      : workers_(workers), text_(text) {
    overrides.insert(overrides.begin(), {absl::StrCat("workers=", workers), Addresses()});
    config_ = std::make_unique<PlannedConfig>(Parse(overrides));
    for (int rank = 0; rank < workers; ++rank) {
      gradients_.emplace_back(config_->model().buffer_size());
      parameters_.emplace_back(config_->model().buffer_size());
    }
  }

  const PlannedConfig& config() const { return *config_; }
  int workers() const { return workers_; }
  std::vector<float>& gradients(int rank) { return gradients_[rank]; }
  std::vector<float>& parameters(int rank) { return parameters_[rank]; }

  // The config of this ring with other overrides.
  PlannedConfig Parse(const std::vector<std::string>& overrides) const {
    absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(text_, "test.textproto", overrides);
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    return *std::move(config);
  }
  // The override that says where the workers listen.
  std::string Addresses() const {
    std::string ring = "ring={bucket_bytes: 4096 first_bucket_bytes: 1024";
    for (int rank = 0; rank < workers_; ++rank) {
      absl::StrAppend(&ring, " address: 'unix:", folder_.Path(absl::StrCat("w", rank)), "'");
    }
    return ring + "}";
  }

  absl::StatusOr<std::unique_ptr<RingExchange>> Connect(int rank,
                                                        const PlannedConfig* config = nullptr,
                                                        std::stop_token stop = {}) {
    return RingExchange::Connect({.config = config == nullptr ? config_.get() : config,
                                  .rank = rank,
                                  .clock = &clock_,
                                  .gradients = absl::MakeSpan(gradients_[rank]),
                                  .parameters = absl::MakeSpan(parameters_[rank]),
                                  .stop = std::move(stop)});
  }

  // Runs `work` for all ranks at the same time, each on a thread and with an exchange of its own,
  // which then leaves with the outcome. Returns the outcomes by rank.
  std::vector<absl::Status> RunWorkers(
      const std::function<absl::Status(int rank, RingExchange& exchange)>& work) {
    std::vector<absl::Status> outcomes(workers_, absl::UnknownError("did not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers_; ++rank) {
      threads.emplace_back([&, rank] {
        absl::StatusOr<std::unique_ptr<RingExchange>> exchange = Connect(rank);
        if (!exchange.ok()) {
          outcomes[rank] = exchange.status();
          return;
        }
        outcomes[rank] = work(rank, **exchange);
        const absl::Status left = (*exchange)->Leave(outcomes[rank]);
        if (outcomes[rank].ok()) outcomes[rank] = left;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

 private:
  const int workers_;
  const char* const text_;
  const ScratchFolder folder_;
  const RealClock clock_;
  std::unique_ptr<PlannedConfig> config_;
  std::vector<std::vector<float>> gradients_, parameters_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_RING_GRPC_TEST_RING_H_
