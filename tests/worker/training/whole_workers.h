#ifndef EVENSHARD_TESTS_WORKER_TRAINING_WHOLE_WORKERS_H_
#define EVENSHARD_TESTS_WORKER_TRAINING_WHOLE_WORKERS_H_

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/cluster.h"
#include "worker/training/trainer.h"

namespace evenshard {

// A small network on the shipped digits, with two shards.
inline constexpr char kDigits[] = R"(
  model {
    input { channels: 1 height: 8 width: 8 }
    layer { name: "fc1" linear { out_features: 20 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  shard { address: "127.0.0.1:0" }
  update { policy: SYNC }
  optimizer { kind: SGD learning_rate: 0.1 }
  training { batch_size: 8 iterations: 10 }
  data {
    idx { images: "data/digits/images.idx3-ubyte.gz" labels: "data/digits/labels.idx1-ubyte.gz" }
    holdout: 0.2
  }
  compute { threads: 1 }
  limits { chunk_bytes: 1024 startup_seconds: 20 exchange_seconds: 60 }
)";

using Result = absl::StatusOr<TrainingSummary>;

inline std::unique_ptr<Trainer> MustCreate(const TestCluster& cluster, int rank,
                                           const Clock& clock) {
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = rank,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .progress = {.output = stderr}});
  INFO(trainer.status().ToString());
  REQUIRE(trainer.ok());
  return *std::move(trainer);
}

// Runs every worker of the cluster on a thread.
inline std::vector<Result> RunAll(const TestCluster& cluster) {
  const RealClock clock;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int rank = 0; rank < cluster.config().workers(); ++rank) {
    trainers.push_back(MustCreate(cluster, rank, clock));
  }
  std::vector<Result> results(trainers.size(), Result(absl::UnknownError("did not run")));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < trainers.size(); ++rank) {
    threads.emplace_back([&, rank] { results[rank] = trainers[rank]->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline void RequireAllOk(const std::vector<Result>& results) {
  for (const Result& result : results) {
    INFO(result.status().ToString());
    REQUIRE(result.ok());
  }
}

inline std::string Message(const Result& result) { return std::string(result.status().message()); }

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_TRAINING_WHOLE_WORKERS_H_
