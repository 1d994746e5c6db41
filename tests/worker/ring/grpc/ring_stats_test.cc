// What the workers of a ring tell operators of themselves.

#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/reader/process_calls.h"
#include "grpcpp/client_context.h"
#include "proto/ring.grpc.pb.h"
#include "tests/testing/cluster.h"
#include "tests/testing/patience.h"
#include "tests/worker/ring/grpc/test_ring.h"

namespace evenshard {
namespace {

using Answers = std::vector<absl::StatusOr<RingStats>>;

// Waits until all workers are here.
absl::Status Meet(RingExchange& exchange) { return exchange.Mean("here", {}).status(); }

absl::Status Train(TestRing& ring, int rank, int iterations, RingExchange& exchange) {
  RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(ring.parameters(rank))));
  for (int iteration = 0; iteration < iterations; ++iteration) {
    RETURN_IF_ERROR(
        exchange.PushPull(iteration, ring.gradients(rank), absl::MakeSpan(ring.parameters(rank))));
  }
  return absl::OkStatus();
}

TEST_CASE("each worker says how far it is, what it has moved, and who is in the ring") {
  TestRing ring(3);
  Answers answers;
  std::vector<TrainingExchange::Traffic> traffic(3);
  RequireAllOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Train(ring, rank, 4, exchange));
    WorkerUsage usage;
    usage.set_resident_bytes(100 + rank);
    RETURN_IF_ERROR(exchange.Report(usage, {}));
    traffic[rank] = exchange.traffic();
    RETURN_IF_ERROR(Meet(exchange));
    if (rank == 0) answers = GetRingStats(ring.config(), absl::Seconds(20));
    return Meet(exchange);
  }));
  REQUIRE(answers.size() == 3);
  std::set<uint64_t> incarnations;
  for (int rank = 0; rank < 3; ++rank) {
    INFO(rank << ": " << answers[rank].status());
    REQUIRE(answers[rank].ok());
    const RingStats& stats = *answers[rank];
    CHECK(stats.worker() == static_cast<uint32_t>(rank));
    CHECK(std::vector<uint32_t>(stats.member().begin(), stats.member().end()) ==
          std::vector<uint32_t>{0, 1, 2});
    CHECK(stats.plan_fingerprint() == ring.config().ring_plan().fingerprint());
    CHECK(stats.iteration() == 4);
    CHECK(stats.bytes_out() > 0);
    CHECK(stats.bytes_out() == traffic[rank].bytes_out);
    CHECK(stats.bytes_in() == traffic[rank].bytes_in);
    CHECK(stats.wait_seconds() > 0);
    CHECK(stats.wait_seconds() < stats.uptime_seconds());
    CHECK_FALSE(stats.has_wait());
    CHECK(stats.failure().empty());
    CHECK(stats.usage().resident_bytes() == 100 + static_cast<uint64_t>(rank));
    CHECK(stats.has_usage_seconds_ago());
    CHECK(stats.connections().limits().connections() > 0);  // counted on TCP only
    incarnations.insert(stats.incarnation());
  }
  CHECK(incarnations.size() == 3);
}

// Whether the worker tells its successor that it waits.
bool Waits(const TestRing& ring, int rank) {
  const auto stub =
      Ring::NewStub(CreateChannel(ring.config().proto().ring().address(rank), ring.config().proto(),
                                  {.role = Role::kWorker, .index = rank}));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  RingState state;
  return stub->Ask(&context, RingAskRequest(), &state).ok() && state.waits();
}

TEST_CASE("a worker that waits for others in a mean is not the one for whom these wait") {
  TestRing ring(2);
  bool waits = false;
  RequireAllOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    const absl::Time last = absl::Now() + kPatience;
    while (rank == 0 && !waits && absl::Now() < last) waits = Waits(ring, 1);
    return Meet(exchange);
  }));
  CHECK(waits);
}

TEST_CASE("a worker that waits says for what, and from whom") {
  TestRing ring(2);
  RingStats waiting;
  RequireAllOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Train(ring, rank, 1, exchange));
    const absl::Time last = absl::Now() + absl::Seconds(30);
    while (rank == 0 && !waiting.has_wait() && absl::Now() < last) {
      const Answers answers = GetRingStats(ring.config(), absl::Seconds(20));
      RETURN_IF_ERROR(answers[1].status());
      waiting = *answers[1];
    }
    return exchange.PushPull(1, ring.gradients(rank), absl::MakeSpan(ring.parameters(rank)));
  }));
  CHECK(waiting.wait().iteration() == 1);
  CHECK(waiting.wait().seconds() >= 3);
  CHECK_THAT(waiting.wait().missing(), Catch::StartsWith("worker 0 (unix:"));
}

TEST_CASE("a worker whose run has failed says why, until it has left") {
  TestRing ring(3);
  std::vector<std::string> failures(3);
  ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    // After an iteration all have connected, so that nobody's Connect fails.
    absl::Status trained = Train(ring, rank, 1, exchange);
    if (rank == 1) return absl::DataLossError("its images are gone");
    trained.Update(
        exchange.PushPull(1, ring.gradients(rank), absl::MakeSpan(ring.parameters(rank))));
    const Answers answers = GetRingStats(ring.config(), absl::Seconds(20));
    if (answers[rank].ok()) failures[rank] = answers[rank]->failure();
    return trained;
  });
  for (const int rank : {0, 2}) {
    CHECK_THAT(failures[rank], Catch::Contains("worker 1 has given up: its images are gone"));
  }
}

}  // namespace
}  // namespace evenshard
