// Whole workers under QUORUM: a slow one leaves iterations out, and all train to the end.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/cluster.h"
#include "tests/testing/unix_shards.h"
#include "tests/worker/training/whole_workers.h"

namespace evenshard {
namespace {

// Every chunk is at this iteration.
void RequireAt(TestCluster& cluster, uint64_t iteration) {
  for (int shard = 0; shard < cluster.config().shards(); ++shard) {
    for (StoredChunk& chunk : cluster.server(shard).shard().store().chunks()) {
      absl::MutexLock lock(&chunk.mutex);
      REQUIRE(chunk.clock().iteration == iteration);
    }
  }
}

}  // namespace

TEST_CASE("a slow worker leaves out the iterations that went on without it") {
  constexpr int kIterations = 40;
  const std::string schedule = GENERATE("FULL", "BACKWARD", "SEQUENTIAL");
  CAPTURE(schedule);
  const UnixShards shards(2);
  std::vector<std::string> overrides = shards.overrides();
  overrides.insert(overrides.end(),
                   {"workers=3", "update.policy=QUORUM", "update.quorum=2", "update.grace=0.1",
                    absl::StrCat("training={iterations: ", kIterations, "}"),
                    "compute={backend: EMULATED emulated {device: 'rtx_2080_ti' time_dilation: "
                    "3000 worker_slowdown: 1 worker_slowdown: 1 "
                    "worker_slowdown: 8}}",
                    "exchange.schedule=" + schedule});
  TestCluster cluster(MustParse(kSmallConfig, overrides));
  const std::vector<Result> results = RunAll(cluster);
  RequireAllOk(results);
  RequireAt(cluster, kIterations);
  const ShardStats stats = cluster.server(0).shard().Stats();
  uint64_t counted = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const WorkerStats& worker = stats.worker(rank);
    CAPTURE(rank, worker.counted_iterations(), worker.dropped_iterations());
    counted += worker.counted_iterations();
    // What it computed either counted or was dropped.
    CHECK(worker.counted_iterations() + worker.dropped_iterations() ==
          static_cast<uint64_t>(results[rank]->iterations));
    CHECK(results[rank]->iterations <= kIterations);
  }
  CHECK(counted >= 2 * kIterations);
}

TEST_CASE("a model trains with the gradients of a quorum") {
  const UnixShards shards(2);
  std::vector<std::string> overrides = shards.overrides();
  overrides.insert(overrides.end(), {"workers=3", "update.policy=QUORUM", "update.quorum=2"});
  TestCluster cluster(MustParse(R"(
    model {
      input { channels: 1 height: 8 width: 8 }
      layer { name: "fc1" linear { out_features: 32 } }
      layer { relu {} }
      layer { name: "fc2" linear { out_features: 10 } }
    }
    partition { scheme: STRIPED }
    shard { address: "127.0.0.1:0" }
    shard { address: "127.0.0.1:0" }
    workers: 2
    update { policy: SYNC }
    optimizer { kind: MOMENTUM learning_rate: 0.05 }
    training { batch_size: 32 epochs: 12 }
    data {
      idx { images: "data/digits/images.idx3-ubyte.gz" labels: "data/digits/labels.idx1-ubyte.gz" }
      holdout: 0.2
    }
    compute { threads: 1 }
    limits { startup_seconds: 20 exchange_seconds: 60 }
  )",
                                overrides));
  const std::vector<Result> results = RunAll(cluster);
  RequireAllOk(results);
  REQUIRE(results[0]->final_accuracy.has_value());
  CHECK(*results[0]->final_accuracy > 0.9);
}

}  // namespace evenshard
