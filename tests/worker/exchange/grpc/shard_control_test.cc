// A worker's control calls, to shards of its own process.

#include "worker/exchange/grpc/shard_control.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

struct Fixture {
  ShardControl::Options OptionsOf(int rank, uint64_t incarnation) const {
    return {.config = &cluster.config(),
            .slot = 0,
            .address = cluster.addresses()[0],
            .rank = rank,
            .incarnation = incarnation,
            .clock = &clock,
            .stop = {}};
  }
  JoinRequest RequestOf(int rank, uint64_t incarnation) const {
    return cluster.RequestToJoin(rank, incarnation);
  }

  // What a worker that has finished says.
  LeaveRequest Farewell(int rank, uint64_t incarnation) const {
    LeaveRequest message;
    message.set_worker(rank);
    message.set_incarnation(incarnation);
    return message;
  }
  SlotLeave Once() const {
    return SlotLeave(&clock, /*tries_again=*/false, ShardControl::kTimeout);
  }

  TestCluster cluster{MustParse(kSmallConfig, {"update.policy=ASYNC"})};
  RealClock clock;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a rank is taken, reported for and given up") {
  ShardControl control(OptionsOf(1, 7));
  REQUIRE(control.AwaitUp({}).ok());
  const absl::StatusOr<JoinResponse> joined = control.Join(RequestOf(1, 7), {});
  REQUIRE(joined.ok());
  CHECK(joined->start_iteration() == 0);
  WorkerUsage usage;
  usage.set_resident_bytes(4711);
  CHECK(control.Report(usage, {}).ok());
  CHECK_FALSE(control.has_left());
  CHECK(control.Leave(Farewell(1, 7), Once()).ok());
  CHECK(control.has_left());
  const WorkerStats stats = cluster.server(0).shard().Stats().worker(1);
  CHECK(stats.state() == WorkerStats::LEFT);
  CHECK(stats.usage().resident_bytes() == 4711);
}

TEST_CASE("a Join may be larger and slower than what strangers may send") {
  TestCluster cluster(MustParse(kSmallConfig, {"limits.strangers.asking_burst_bytes=16384",
                                               "limits.strangers.asking_bytes_per_second=1024"}));
  const RealClock clock;
  TcpProxy slow(std::stoi(cluster.addresses()[0].substr(cluster.addresses()[0].rfind(':') + 1)));
  slow.Delay(absl::Milliseconds(100));  // each piece of 16 KiB
  ShardControl control({.config = &cluster.config(),
                        .slot = 0,
                        .address = slow.endpoint(),
                        .rank = 0,
                        .incarnation = 7,
                        .clock = &clock,
                        .stop = {}});
  REQUIRE(control.AwaitUp({}).ok());
  JoinRequest request = cluster.RequestToJoin(0, 7);
  request.set_process(std::string(100'000, 'p'));
  const absl::Status joined = control.Join(request, {}).status();
  CAPTURE(joined.ToString());
  CHECK(joined.ok());
}

TEST_CASE_METHOD(Fixture, "who never called Join has nothing to leave") {
  ShardControl control(OptionsOf(1, 7));
  CHECK(control.Leave(Farewell(1, 7), Once()).ok());
  CHECK_FALSE(control.has_left());
}

TEST_CASE_METHOD(Fixture, "a refusal is returned as the shard gives it") {
  ShardControl holder(OptionsOf(0, 7));
  REQUIRE(holder.Join(RequestOf(0, 7), {}).ok());
  // A rank that is held without a stream is free again later, or when its holder leaves.
  ShardControl successor(OptionsOf(0, 8));
  const absl::Status held = successor.Join(RequestOf(0, 8), {}).status();
  CHECK(absl::IsUnavailable(held));
  CHECK_THAT(Message(held), Contains("it is free in"));
  CHECK(holder.Leave(Farewell(0, 7), Once()).ok());
  CHECK(successor.Join(RequestOf(0, 8), {}).ok());

  CHECK(absl::IsOutOfRange(ShardControl(OptionsOf(7, 9)).Join(RequestOf(7, 9), {}).status()));
}

TEST_CASE_METHOD(Fixture, "a stop ends a wait for a shard that is not up") {
  cluster.server(0).Shutdown();
  std::stop_source stop;
  ShardControl control(OptionsOf(0, 7));
  absl::Status up;
  std::thread waiting([&] { up = control.AwaitUp(stop.get_token()); });
  stop.request_stop();
  waiting.join();
  CHECK(absl::IsCancelled(up));
}

TEST_CASE_METHOD(Fixture, "a Leave to a shard that cannot be reached is tried again, or not") {
  ShardControl control(OptionsOf(1, 7));
  REQUIRE(control.Join(RequestOf(1, 7), {}).ok());
  cluster.server(0).Shutdown();
  for (const bool tries_again : {false, true}) {
    const absl::Status left =
        control.Leave(Farewell(1, 7), SlotLeave(&clock, tries_again, absl::Milliseconds(300)));
    INFO(left.ToString());
    CHECK_FALSE(left.ok());
    CHECK_THAT(Message(left), Contains("shard 0 (127.0.0.1:"));
  }
  CHECK_FALSE(control.has_left());
}

}  // namespace evenshard
