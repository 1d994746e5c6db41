// QUORUM over real gRPC connections: whose gradients are in the parameters, what a worker is told
// that comes too late, and where it goes on.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "tests/testing/cluster.h"
#include "tests/testing/unix_shards.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

std::vector<std::string> Overrides(const UnixShards& shards, int workers, int quorum,
                                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = shards.overrides();
  all.insert(all.end(), {absl::StrCat("workers=", workers), "update.policy=QUORUM",
                         absl::StrCat("update.quorum=", quorum), "update.grace=0",
                         "optimizer={kind: SGD learning_rate: 1}"});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// A worker that the test drives. Its gradient is the same everywhere.
struct Worker {
  Worker(const TestCluster& cluster, int rank)
      : gradient(cluster.config().model().buffer_size()),
        parameters(gradient.size()),
        exchange(*cluster.Connect(rank)) {
    REQUIRE(exchange->Pull(absl::MakeSpan(parameters)).ok());
  }

  absl::Status Push(float value) {
    std::fill(gradient.begin(), gradient.end(), value);
    return exchange->PushPull(exchange->next_iteration(), gradient, absl::MakeSpan(parameters));
  }
  absl::Status CatchUp() { return exchange->Pull(absl::MakeSpan(parameters)); }

  // In use until the exchange ends.
  std::vector<float> gradient;
  std::vector<float> parameters;
  std::unique_ptr<Exchange> exchange;
};

// By how much every element has decreased, which must be by the same.
float Decrease(const PlannedConfig& config, const std::vector<float>& start,
               const std::vector<float>& parameters) {
  const float first = start[0] - parameters[0];
  for (const Tensor& tensor : config.model().tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      if (std::abs(start[i] - parameters[i] - first) > 1e-4) return -1000;
    }
  }
  return first;
}

}  // namespace

TEST_CASE("a gradient that is carried is limited by what it counts for") {
  const UnixShards shards(2);
  TestCluster cluster(
      MustParse(kSmallConfig, Overrides(shards, 3, 2, {"update.late=CARRY", "update.max_norm=2"})));
  Worker fast(cluster, 0), other(cluster, 1), slow(cluster, 2);
  const auto together = [](Worker& a, Worker& b) {
    absl::Status pushed;
    std::thread thread([&] { pushed = b.Push(1); });
    REQUIRE(a.Push(1).ok());
    thread.join();
    REQUIRE(pushed.ok());
  };
  const auto limited = [&](int rank) {
    return cluster.server(0).shard().Stats().worker(rank).limited_pushes();
  };
  const auto drop = [](Worker& worker, float value) {
    REQUIRE(worker.Push(value).ok());
    REQUIRE(worker.exchange->is_behind());
    REQUIRE(worker.CatchUp().ok());
  };
  const std::vector<float> start = cluster.Parameters();
  for (int i = 0; i < 3; ++i) together(fast, other);
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(3));

  // Its next push brings two gradients of the usual size, and counts as two.
  drop(slow, 1);
  together(fast, slow);
  CHECK(limited(2) == 0);
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(4));

  // 101 for two, where twice the usual norm is allowed: what counts is 4 for two, beside 1.
  drop(other, 100);
  together(fast, other);
  CHECK(limited(1) == cluster.server(0).shard().Stats().chunks());
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(4 + 5.0 / 3));

  // What was limited is not carried on.
  drop(slow, 1);
  together(fast, slow);
  CHECK(limited(0) + limited(2) == 0);
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(5 + 5.0 / 3));
}

TEST_CASE("a late worker is told that it was dropped, and goes on where the run is") {
  const std::string more =
      GENERATE("exchange.schedule=FULL", "exchange.schedule=SEQUENTIAL", "partition.scheme=STRIPED",
               "update.deterministic=true", "limits.held_bytes=1024");
  CAPTURE(more);
  const UnixShards shards(3);
  TestCluster cluster(MustParse(kSmallConfig, Overrides(shards, 3, 2, {more})));
  const std::vector<float> start = cluster.Parameters();
  Worker fast(cluster, 0), other(cluster, 1), slow(cluster, 2);
  const auto together = [](Worker& a, Worker& b, float first, float second) {
    absl::Status pushed;
    std::thread thread([&] { pushed = b.Push(second); });
    REQUIRE(a.Push(first).ok());
    thread.join();
    REQUIRE(pushed.ok());
  };
  for (int i = 0; i < 3; ++i) together(fast, other, 1, 3);
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(6));
  CHECK(fast.exchange->next_iteration() == 3);
  CHECK_FALSE(fast.exchange->is_behind());

  REQUIRE(slow.Push(100).ok());
  CHECK(slow.exchange->is_behind());
  CHECK(absl::IsFailedPrecondition(slow.Push(100)));  // it has to catch up first
  REQUIRE(slow.CatchUp().ok());
  CHECK(slow.exchange->next_iteration() == 3);
  CHECK(Decrease(cluster.config(), start, slow.parameters) == Approx(6));
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(6));

  together(fast, slow, 2, 4);  // now its gradient counts
  CHECK(Decrease(cluster.config(), start, slow.parameters) == Approx(9));
  REQUIRE(other.Push(100).ok());
  CHECK(other.exchange->is_behind());
  REQUIRE(other.CatchUp().ok());
  CHECK(other.exchange->next_iteration() == 4);
  CHECK(Decrease(cluster.config(), start, other.parameters) == Approx(9));

  const ShardStats stats = cluster.server(1).shard().Stats();
  CHECK(stats.quorum().iteration() == 3);
  CHECK(std::vector<uint32_t>(stats.quorum().worker().begin(), stats.quorum().worker().end()) ==
        std::vector<uint32_t>{0, 2});
  CHECK(stats.worker(0).counted_iterations() == 4);
  CHECK(stats.worker(0).dropped_iterations() == 0);
  CHECK(stats.worker(1).counted_iterations() == 3);
  CHECK(stats.worker(1).dropped_iterations() == 1);
  CHECK(stats.worker(2).counted_iterations() == 1);
  CHECK(stats.worker(2).dropped_iterations() == 1);
  for (Worker* const worker : {&fast, &other, &slow}) {
    CHECK(worker->exchange->Leave(absl::OkStatus()).ok());
  }
}

TEST_CASE("workers of any speed train to the end, and every update has a quorum") {
  constexpr int kWorkers = 4;
  constexpr int kQuorum = 2;
  constexpr int kIterations = 60;
  const std::string more =
      GENERATE("update.grace=0", "update.grace=0.5", "update.clip_global_norm=100");
  CAPTURE(more);
  const UnixShards shards(2);
  TestCluster cluster(MustParse(kSmallConfig, Overrides(shards, kWorkers, kQuorum, {more})));
  const std::vector<float> start = cluster.Parameters();
  std::atomic<int> trained{0}, wrong{0};
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(cluster.config().model().buffer_size());
    RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters)));
    // Whoever counts, the mean is this.
    const std::vector<float> gradient(parameters.size(), 0.125f);
    // While it pulled others may have gone on. Then its first gradient comes too late.
    for (bool is_first = true; exchange.next_iteration() < kIterations; is_first = false) {
      const int64_t iteration = exchange.next_iteration();
      const float before = Decrease(cluster.config(), start, parameters);
      const float expected = 0.125f * static_cast<float>(iteration);
      if (!is_first && before != Approx(expected).margin(1e-3)) ++wrong;
      if (rank > 1) absl::SleepFor(absl::Milliseconds(rank));
      RETURN_IF_ERROR(exchange.PushPull(iteration, gradient, absl::MakeSpan(parameters)));
      if (exchange.is_behind()) {
        RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters)));
      } else {
        ++trained;
      }
    }
    return absl::OkStatus();
  }));
  CHECK(wrong == 0);
  CHECK(trained >= kQuorum);
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(0.125f * kIterations));
}

TEST_CASE("with all workers QUORUM gives the bits of SYNC") {
  const UnixShards shards(2);
  const auto trained = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = shards.overrides();
    all.insert(all.end(), {"workers=3", "update.deterministic=true"});
    all.insert(all.end(), more.begin(), more.end());
    TestCluster cluster(MustParse(kSmallConfig, all));
    RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
      std::vector<float> parameters(cluster.config().model().buffer_size());
      RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters)));
      for (int i = 0; i < 5; ++i) {
        RETURN_IF_ERROR(exchange.PushPull(i, TestGradient(cluster.config().model(), rank, i),
                                          absl::MakeSpan(parameters)));
      }
      return absl::OkStatus();
    }));
    return cluster.Parameters();
  };
  const std::vector<float> sync = trained({});
  CHECK(trained({"update.policy=QUORUM", "update.quorum=3"}) == sync);
}

TEST_CASE("a run goes on as long as there are enough workers, and fails with fewer") {
  const UnixShards shards(2);
  TestCluster cluster(
      MustParse(kSmallConfig, Overrides(shards, 3, 2, {"limits.reconnect_seconds=0"})));
  const std::vector<float> start = cluster.Parameters();
  Worker a(cluster, 0), b(cluster, 1);
  auto lost = std::make_unique<Worker>(cluster, 2);
  const auto both = [&](float value) {
    absl::Status pushed;
    std::thread thread([&] { pushed = b.Push(value); });
    const absl::Status status = a.Push(value);
    thread.join();
    return status.ok() ? pushed : status;
  };
  REQUIRE(both(1).ok());
  REQUIRE(lost->exchange->Leave(absl::InternalError("it has crashed")).ok());
  lost.reset();
  for (int i = 0; i < 3; ++i) REQUIRE(both(1).ok());
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(4));
  // It is started again, and takes part where the run is.
  Worker back(cluster, 2);
  REQUIRE(back.CatchUp().ok());
  CHECK(back.exchange->next_iteration() == 4);
  absl::Status pushed;
  std::thread thread([&] { pushed = back.Push(3); });
  REQUIRE(a.Push(1).ok());
  thread.join();
  REQUIRE(pushed.ok());
  CHECK(Decrease(cluster.config(), start, cluster.Parameters()) == Approx(6));
  // Without two of three it is over.
  back.exchange->Leave(absl::InternalError("it has crashed")).IgnoreError();
  b.exchange->Leave(absl::InternalError("it has crashed too")).IgnoreError();
  CHECK_FALSE(a.Push(1).ok());
  CHECK(cluster.server(0).shard().has_failed());
}

TEST_CASE("what needs all workers of an iteration is refused under QUORUM") {
  const UnixShards shards(2);
  TestCluster cluster(MustParse(kSmallConfig, Overrides(shards, 3, 2)));
  Worker worker(cluster, 0);
  double value = 1;
  const auto mean = worker.exchange->Mean("here", {value});
  REQUIRE(absl::IsFailedPrecondition(mean.status()));
  CHECK(std::string(mean.status().message()).find("not all workers take part") !=
        std::string::npos);
  const auto shard_zero = MustParse(kSmallConfig, Overrides(shards, 3, 2));
  CHECK(shard_zero.proto().exchange().shared_memory() == false);
}

}  // namespace evenshard
