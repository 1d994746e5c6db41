// A worker's control calls, to shards of its own process.

#include "worker/exchange/shard_control.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tests/testing/cluster.h"

namespace ps {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

struct Fixture {
  ShardControl::Options OptionsOf(int rank, uint64_t incarnation) const {
    return {.config = &cluster.config(),
            .shard = 0,
            .address = cluster.addresses()[0],
            .rank = rank,
            .incarnation = incarnation,
            .clock = &clock,
            .stop = {}};
  }
  absl::Time Soon() const { return clock.Now() + absl::Seconds(30); }

  TestCluster cluster{MustParse(kSmallConfig, {"update.policy=ASYNC"})};
  RealClock clock;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a rank is taken, reported for and given up") {
  ShardControl control(OptionsOf(1, 7));
  REQUIRE(control.AwaitUp(Soon()).ok());
  const absl::StatusOr<JoinResponse> joined = control.Join(/*buffers=*/nullptr, Soon());
  REQUIRE(joined.ok());
  CHECK(joined->start_iteration() == 0);
  WorkerUsage usage;
  usage.set_resident_bytes(4711);
  CHECK(control.Report(usage, {}).ok());
  CHECK_FALSE(control.has_left());
  CHECK(control.Leave(absl::OkStatus(), /*before_start=*/false, ShardControl::kTimeout).ok());
  CHECK(control.has_left());
  const WorkerStats stats = cluster.server(0).shard().Stats().worker(1);
  CHECK(stats.state() == WorkerStats::LEFT);
  CHECK(stats.usage().resident_bytes() == 4711);
}

TEST_CASE_METHOD(Fixture, "who never called Join has nothing to leave") {
  ShardControl control(OptionsOf(1, 7));
  CHECK(control.Leave(absl::OkStatus(), /*before_start=*/false, ShardControl::kTimeout).ok());
  CHECK_FALSE(control.has_left());
}

TEST_CASE_METHOD(Fixture, "a refusal that passes is waited for, another one is returned") {
  // A rank that is held without a stream is free again after Membership::kStreamGrace, or when its
  // holder leaves.
  ShardControl holder(OptionsOf(0, 7));
  REQUIRE(holder.Join(nullptr, Soon()).ok());
  ShardControl successor(OptionsOf(0, 8));
  const absl::Status at_once =
      successor.Join(nullptr, clock.Now() + absl::Milliseconds(500)).status();
  CHECK(absl::IsUnavailable(at_once));
  CHECK_THAT(Message(at_once), Contains("shard 0 (127.0.0.1:") && Contains("it is free in"));

  absl::StatusOr<JoinResponse> joined = absl::UnknownError("did not run");
  std::thread waiting([&] { joined = successor.Join(nullptr, Soon()); });
  absl::SleepFor(absl::Milliseconds(50));  // most likely it has been refused once by then
  CHECK(holder.Leave(absl::OkStatus(), false, ShardControl::kTimeout).ok());
  waiting.join();
  CHECK(joined.ok());

  ShardControl unknown(OptionsOf(7, 9));
  CHECK(absl::IsOutOfRange(unknown.Join(nullptr, Soon()).status()));
}

TEST_CASE_METHOD(Fixture, "a stop ends a wait for a shard that is not up") {
  ShardControl::Options options = OptionsOf(0, 7);
  cluster.server(0).Shutdown();
  std::stop_source stop;
  options.stop = stop.get_token();
  ShardControl control(options);
  absl::Status up;
  std::thread waiting([&] { up = control.AwaitUp(Soon()); });
  stop.request_stop();
  waiting.join();
  CHECK(absl::IsCancelled(up));
  CHECK_THAT(Message(up), Contains("shard 0 (127.0.0.1:"));
  CHECK(absl::IsDeadlineExceeded(ShardControl(OptionsOf(0, 7)).AwaitUp(clock.Now())));
}

}  // namespace ps
