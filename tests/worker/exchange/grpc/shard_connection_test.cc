// A worker's connection to a slot, to a shard of its own process.

#include "worker/exchange/grpc/shard_connection.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/await.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

// A worker that pushes nothing.
class IdleWorker final : public ShardConnection::Handler {
 public:
  std::atomic<int> joined{0};
  std::atomic<uint64_t> ended{0};  // the newest attempt that did

 private:
  void Joined(int, uint64_t, const JoinResponse&) override { ++joined; }
  void Ended(int, uint64_t attempt, const absl::Status&) override { ended = attempt; }
  std::vector<GradientHeader> NextGradients(int, int, grpc::ByteBuffer*) override { return {}; }
  void GradientsSent(absl::Span<const GradientHeader>) override {}
  absl::Status TakeParameters(int, const Segments&) override { return absl::OkStatus(); }
};

struct Fixture {
  ShardConnection::Options OptionsOf(int rank, uint64_t incarnation) {
    ShardConnection::Options options;
    options.control.config = &cluster.config();
    options.control.rank = rank;
    options.control.incarnation = incarnation;
    options.control.clock = &clock;
    options.handler = &worker;
    return options;
  }
  ExchangeTransport::Attempt Try(int rank, uint64_t incarnation) {
    return {.number = ++attempts,
            .address = counter.endpoint(),
            .not_before = absl::InfinitePast(),
            .join = cluster.RequestToJoin(rank, incarnation)};
  }

  TestCluster cluster{MustParse(kSmallConfig, {"update.policy=ASYNC", "limits.connections=3",
                                               "limits.strangers.handshake_seconds=604800"})};
  TcpProxy counter{std::stoi(cluster.addresses()[0].substr(cluster.addresses()[0].rfind(':') + 1))};
  RealClock clock;
  IdleWorker worker;
  uint64_t attempts = 0;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a worker joins when all of its streams are open") {
  ShardConnection connection(OptionsOf(0, 7));
  connection.Connect(Try(0, 7));
  AwaitTrue([&] { return worker.joined == 1; });
  CHECK(counter.connections() == 1 + 3);  // with that of the control calls
  CHECK(worker.ended == 0);
}

TEST_CASE_METHOD(Fixture,
                 "an attempt whose first stream is refused costs the shard one connection") {
  ShardConnection::Options options = OptionsOf(0, 7);
  options.control.names_slot = true;
  options.control.slot = 1;  // which the other process has
  ShardConnection connection(options);
  for (int i = 0; i < 3; ++i) {
    connection.Connect(Try(0, 7));
    AwaitTrue([&] { return worker.ended == attempts; });
  }
  CHECK(worker.joined == 0);
  CHECK(counter.connections() == 1 + 3);
}

TEST_CASE_METHOD(Fixture, "what a refused Join has opened is closed again") {
  ShardConnection holder(OptionsOf(0, 7));
  holder.Connect(Try(0, 7));
  AwaitTrue([&] { return worker.joined == 1; });
  {
    ShardConnection another(OptionsOf(0, 8));
    for (int i = 0; i < 3; ++i) {
      another.Connect(Try(0, 8));
      AwaitTrue([&] { return worker.ended == attempts; });
    }
  }
  CHECK(worker.joined == 1);
  AwaitTrue([&] { return counter.open_connections() == 1 + 3; });
}

TEST_CASE_METHOD(Fixture, "an attempt that is given up while it connects leaves nothing behind") {
  ShardConnection connection(OptionsOf(0, 7));
  connection.Connect(Try(0, 7));
  AwaitTrue([&] { return worker.joined == 1; });
  counter.Hold();
  connection.Connect(Try(0, 7));
  AwaitTrue([&] { return counter.connections() == 4 + 1; });
  connection.Disconnect();
  connection.AwaitDisconnected();
  counter.Release();
  AwaitTrue([&] { return counter.open_connections() == 1; });  // that of the control calls
}

}  // namespace evenshard
