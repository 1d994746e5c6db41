// A cluster in a process that reads a time of day other than the kernel's (see
// tests/testing/wall_clock.cc), as where somebody sets the clock while workers wait.

#include <catch2/catch.hpp>
#include <thread>

#include "tests/testing/cluster.h"

namespace evenshard {

TEST_CASE("a clock that is set does not end a worker's wait for another") {
  TestCluster cluster(MustParse(kSmallConfig));
  const Model& model = cluster.config().model();
  const std::vector<std::vector<float>> gradients = {TestGradient(model, 0, 0),
                                                     TestGradient(model, 1, 0)};
  std::vector<std::vector<float>> parameters(2, std::vector<float>(model.buffer_size()));
  const auto push_pull = [&](Exchange& exchange, int rank) {
    return exchange.PushPull(0, gradients[rank], absl::MakeSpan(parameters[rank]));
  };
  auto early = cluster.Connect(0);
  REQUIRE(early.ok());
  auto late = cluster.Connect(1);
  REQUIRE(late.ok());
  absl::Status outcome = absl::UnknownError("did not run");
  std::thread waits([&] { outcome = push_pull(**early, 0); });
  AwaitTrue([&] {
    const WorkerStats stats = cluster.server(0).shard().Stats().worker(0);
    return stats.pushes() == cluster.config().plan().chunks_of_shard(0).size();
  });
  const absl::Status second = push_pull(**late, 1);
  waits.join();
  CHECK(outcome == absl::OkStatus());
  CHECK(second == absl::OkStatus());
  CHECK((*early)->Leave(outcome).ok());
  CHECK((*late)->Leave(second).ok());
}

}  // namespace evenshard
