#include "worker/ring/grpc/ring_exchange.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/server_builder.h"
#include "proto/ring.grpc.pb.h"
#include "tests/testing/cluster.h"
#include "tests/testing/thread_check.h"
#include "tests/worker/ring/grpc/test_ring.h"

namespace evenshard {
namespace {

constexpr int kIterations = 4;

// Trains on test gradients, layer by layer.
std::vector<absl::Status> Train(TestRing& ring) {
  return ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    absl::Status status = exchange.Pull(absl::MakeSpan(ring.parameters(rank)));
    for (int iteration = 0; iteration < kIterations && status.ok(); ++iteration) {
      for (const int layer : {0, 2, 4}) status.Update(exchange.AwaitLayer(layer));
      const std::vector<float> gradient = TestGradient(ring.config().model(), rank, iteration);
      std::copy(gradient.begin(), gradient.end(), ring.gradients(rank).begin());
      status.Update(
          exchange.Begin(iteration, ring.gradients(rank), absl::MakeSpan(ring.parameters(rank))));
      for (const int layer : {4, 2, 0}) status.Update(exchange.Push(layer));
    }
    status.Update(exchange.AwaitAll());
    return status;
  });
}

// The same with shards.
std::vector<float> TrainWithShards(int workers, std::vector<std::string> overrides) {
  const ScratchFolder folder;
  overrides.insert(overrides.end(),
                   {absl::StrCat("workers=", workers), "update.deterministic=true",
                    absl::StrCat("shard[0].address='unix:", folder.Path("ps0"), "'")});
  TestCluster cluster(MustParse(kSmallConfig, overrides));
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    std::vector<float> parameters(cluster.config().model().buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    for (int iteration = 0; iteration < kIterations && status.ok(); ++iteration) {
      const std::vector<float> gradient = TestGradient(cluster.config().model(), rank, iteration);
      status.Update(exchange.PushPull(iteration, gradient, absl::MakeSpan(parameters)));
    }
    return status;
  }));
  return cluster.Parameters();
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max<double>(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST_CASE("a ring comes to the parameters of shards to rounding, with equal bits in equal runs") {
  const std::string clipping = GENERATE("update.clip_global_norm=0", "update.clip_global_norm=1");
  for (const int workers : {2, 3, 4}) {
    INFO(workers << " workers, " << clipping);
    const std::vector<std::string> overrides = {"optimizer={kind: NESTEROV learning_rate: 0.01}",
                                                clipping};
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      TestRing ring(workers, overrides);
      RequireAllOk(Train(ring));
      if (run == 0) first = ring.parameters(0);
      for (int rank = 0; rank < workers; ++rank) {
        REQUIRE(std::memcmp(first.data(), ring.parameters(rank).data(),
                            first.size() * sizeof(float)) == 0);
      }
    }
    CHECK(LargestDifference(first, TrainWithShards(workers, overrides)) < 1e-5);
  }
}

TEST_CASE("16 bits go over the wire, and halve it") {
  TestRing ring(3, {"exchange={gradient_encoding: BFLOAT16 parameter_encoding: FLOAT16}"});
  TestRing exact(3);
  std::vector<uint64_t> bytes;
  for (TestRing* each : {&ring, &exact}) {
    RequireAllOk(each->RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      absl::Status status = exchange.Pull(absl::MakeSpan(each->parameters(rank)));
      const std::vector<float> gradient = TestGradient(each->config().model(), rank, 0);
      std::copy(gradient.begin(), gradient.end(), each->gradients(rank).begin());
      status.Update(
          exchange.PushPull(0, each->gradients(rank), absl::MakeSpan(each->parameters(rank))));
      if (rank == 0) bytes.push_back(exchange.traffic().bytes_out + exchange.traffic().bytes_in);
      return status;
    }));
  }
  for (const int rank : {1, 2}) CHECK(ring.parameters(rank) == ring.parameters(0));
  CHECK(LargestDifference(ring.parameters(0), exact.parameters(0)) < 1e-3);
  CHECK(2 * bytes[0] == bytes[1]);
  // 2 (n - 1) / n of the model each way.
  const double whole = 2.0 * 2 / 3 * exact.config().model().buffer_size() * 4;
  CHECK(std::abs(static_cast<double>(bytes[1]) / 2 - whole) < 0.05 * whole);
}

TEST_CASE("a worker that skips an iteration does not count") {
  TestRing ring(3, {"optimizer={learning_rate: 1}"});
  std::vector<float> before;
  RequireAllOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    absl::Status status = exchange.Pull(absl::MakeSpan(ring.parameters(rank)));
    if (rank == 0) before = ring.parameters(0);
    std::fill(ring.gradients(rank).begin(), ring.gradients(rank).end(), rank == 1 ? 5.0f : 1.0f);
    status.Update(exchange.PushPull(
        0, rank == 1 ? absl::Span<const float>() : absl::MakeConstSpan(ring.gradients(rank)),
        absl::MakeSpan(ring.parameters(rank))));
    status.Update(exchange.PushPull(1, {}, absl::MakeSpan(ring.parameters(rank))));
    return status;
  }));
  for (int rank = 0; rank < 3; ++rank) {
    for (const Tensor& tensor : ring.config().model().tensors()) {
      CHECK(ring.parameters(rank)[tensor.offset] == before[tensor.offset] - 1);
    }
  }
}

// Returns the outcomes when each worker but `culprit` trains, which does something else.
std::vector<absl::Status> TrainBut(
    TestRing& ring, int culprit,
    const std::function<absl::Status(RingExchange& exchange)>& otherwise) {
  return ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    absl::Status status = exchange.Pull(absl::MakeSpan(ring.parameters(rank)));
    if (rank == culprit) return otherwise(exchange);
    for (int iteration = 0; status.ok(); ++iteration) {
      status.Update(exchange.PushPull(iteration, ring.gradients(rank),
                                      absl::MakeSpan(ring.parameters(rank))));
    }
    return status;
  });
}

TEST_CASE("a worker that gives up tells all others why") {
  TestRing ring(4);
  const std::vector<absl::Status> outcomes =
      TrainBut(ring, 2, [](RingExchange&) { return absl::DataLossError("the disk is gone"); });
  for (const int rank : {0, 1, 3}) {
    CHECK(outcomes[rank].code() == absl::StatusCode::kAborted);
    CHECK(outcomes[rank].message() == "worker 2 has given up: the disk is gone");
  }
}

TEST_CASE("a gradient that is not finite ends the run everywhere with the worker's name") {
  TestRing ring(4);
  const std::vector<absl::Status> outcomes = TrainBut(ring, 1, [&](RingExchange& exchange) {
    ring.gradients(1)[7] = std::numeric_limits<float>::quiet_NaN();
    return exchange.PushPull(0, ring.gradients(1), absl::MakeSpan(ring.parameters(1)));
  });
  for (const absl::Status& outcome : outcomes) {
    CHECK(outcome.code() == absl::StatusCode::kInvalidArgument);
    CHECK(outcome.message() ==
          "worker 1 pushed a gradient that is not finite at iteration 0: fc1/weight element 7");
  }
}

TEST_CASE("a worker that does not push is named when the others have waited long enough") {
  TestRing ring(4, {"limits.exchange_seconds=6"});
  const std::vector<absl::Status> outcomes = TrainBut(ring, 2, [&](RingExchange& exchange) {
    while (exchange.Begin(0, ring.gradients(2), absl::MakeSpan(ring.parameters(2))).ok()) {
    }
    absl::Status failure;
    while (failure.ok()) {
      absl::SleepFor(absl::Milliseconds(20));
      failure = exchange.AwaitAll();
      if (absl::StrContains(failure.message(), "has not been pushed")) failure = absl::OkStatus();
    }
    return failure;
  });
  for (const absl::Status& outcome : outcomes) {
    INFO(outcome.ToString());
    CHECK(outcome.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(absl::StrContains(outcome.message(),
                            "w2) is at iteration 0 and has not pushed all of it "
                            "(noticed by worker 3)"));
  }
}

TEST_CASE("workers with another config, or at another place, are refused by name") {
  TestRing ring(2, {"limits.startup_seconds=5"});
  const PlannedConfig other =
      ring.Parse({"workers=2", ring.Addresses(), "limits.startup_seconds=5", "training.seed=7"});
  std::vector<absl::Status> outcomes(2);
  std::thread first([&] { outcomes[0] = ring.Connect(0, &other).status(); });
  outcomes[1] = ring.Connect(1).status();
  first.join();
  // One of the two asks first; the other hears of it or waits in vain.
  const std::string all = absl::StrCat(outcomes[0].message(), outcomes[1].message());
  INFO(all);
  CHECK((absl::StrContains(all, "worker 0 has another config than worker 1") ||
         absl::StrContains(all, "worker 1 has another config than worker 0")));
  CHECK(!outcomes[0].ok());
  CHECK(!outcomes[1].ok());
}

TEST_CASE("addresses that are mixed up are noticed") {
  TestRing ring(3);
  // Worker 0 takes worker 2's address for that of its successor.
  PlannedConfig mixed =
      ring.Parse({"workers=3", ring.Addresses(),
                  absl::StrCat("ring.address[1]=", ring.config().proto().ring().address(2)),
                  absl::StrCat("ring.address[2]=", ring.config().proto().ring().address(1))});
  // They stay until all have come to an end, since one that leaves tells the others.
  std::vector<absl::StatusOr<std::unique_ptr<RingExchange>>> connected;
  for (int rank = 0; rank < 3; ++rank) connected.emplace_back(absl::UnknownError("did not run"));
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back(
        [&, rank] { connected[rank] = ring.Connect(rank, rank == 0 ? &mixed : nullptr); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(connected[0].status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(connected[0].status().message(),
                          "worker 0 looked for worker 1 here, and this is worker 2, to which "
                          "worker 1 passes on: the addresses in `ring` are mixed up"));
}

TEST_CASE("a worker that is started twice, too late or without the others says so") {
  TestRing ring(2, {"limits.startup_seconds=1"});
  const absl::Status alone = ring.Connect(0).status();
  CHECK(alone.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(absl::StrContains(alone.message(), "w1) is not up after 1s (limits.startup_seconds)"));

  TestRing twice(2);
  RequireAllOk(twice.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    if (rank == 1) {
      const absl::Status again = twice.Connect(1).status();
      ThreadCheck(absl::StrContains(again.message(), "worker 1 cannot listen on unix:"));
      ThreadCheck(absl::StrContains(again.message(), "another process listens on"));
    }
    return absl::OkStatus();
  }));

  TestRing late(3);
  RequireAllOk(late.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    return exchange.Pull(absl::MakeSpan(late.parameters(rank)));
  }));
}

// A worker that hears of who joins, and does not answer.
class SilentSuccessor : public Ring::Service {
 public:
  explicit SilentSuccessor(std::function<void()> on_join) : on_join_(std::move(on_join)) {}

  grpc::Status Join(grpc::ServerContext* context, const RingJoinRequest* request,
                    RingJoinResponse* response) override {
    on_join_();
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::CANCELLED;
  }

 private:
  const std::function<void()> on_join_;
};

TEST_CASE("a stop does not wait for the answer of a successor that has just gone") {
  TestRing ring(2, {"limits.startup_seconds=600"});
  std::stop_source stop;
  SilentSuccessor silent([&stop] { stop.request_stop(); });
  grpc::ServerBuilder builder;
  builder.AddListeningPort(ring.config().proto().ring().address(1),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&silent);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  CHECK(ring.Connect(0, nullptr, stop.get_token()).status() ==
        absl::CancelledError("told to stop"));
}

TEST_CASE("a port that others cannot know is refused") {
  const PlannedConfig config =
      TestRing(2).Parse({"workers=2", "ring={address: '127.0.0.1:0' address: '127.0.0.1:0'}"});
  const RealClock clock;
  const absl::Status status =
      RingExchange::Connect({.config = &config, .rank = 0, .clock = &clock}).status();
  CHECK(absl::StrContains(status.message(),
                          "ring.address[0]: is \"127.0.0.1:0\", and others must find it"));
}

}  // namespace
}  // namespace evenshard
