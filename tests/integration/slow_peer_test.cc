// Peers that no gRPC library would make: they do not read, read byte by byte, or stop in the
// middle of a message. They cost the shard a bounded queue, and under ASYNC nobody else anything.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "grpc/grpc.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/chunk_messages.h"
#include "tests/testing/cluster.h"
#include "tests/testing/http2_peer.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Never shut down: after writes that had to wait, the end of gRPC's last user can take the 10 s
// of a poller of gRPC's own.
const bool kGrpcStarted = (grpc_init(), true);

constexpr uint64_t kIncarnation = 4711;

// One shard, 17 chunks, of which all but the last have 64 KiB.
PlannedConfig LargeChunks(const std::string& policy) {
  return MustParse(R"(
    model {
      input { channels: 1024 height: 1 width: 1 }
      layer { name: "fc" linear { out_features: 256 } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "127.0.0.1:0" }
    workers: 2
    training { iterations: 1 }
    compute { backend: EMULATED }
    limits { chunk_bytes: 65536 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
  )",
                   {"update.policy=" + policy});
}

// Worker 0 of `cluster`, by hand.
Http2Peer JoinedPeer(TestCluster& cluster, bool endless_window = true) {
  REQUIRE(cluster.server(0).shard().Join(cluster.RequestToJoin(0, kIncarnation), "test").ok());
  return Http2Peer(cluster.addresses()[0], 0, kIncarnation, endless_window);
}

constexpr uint64_t kChunkBytes = 65536;

// A push of chunk 0: of zeros, or a short one without contribution.
std::string Push(uint64_t iteration, bool skip) {
  GradientChunk message;
  message.set_worker(0);
  message.set_incarnation(kIncarnation);
  message.set_iteration(iteration);
  message.set_skip(skip);
  if (!skip) message.set_data(std::string(kChunkBytes, '\0'));
  return MessageOf(message).SerializeAsString();
}

WorkerStats StatsOfPeer(TestCluster& cluster) {
  return cluster.server(0).shard().Stats().worker(0);
}

// One whole push, so that the stream is known to be open, and then a part of the next.
void StopInTheMiddle(TestCluster& cluster, Http2Peer& peer) {
  peer.SendMessage(Push(0, /*skip=*/true));
  AwaitTrue([&] { return StatsOfPeer(cluster).skipped_pushes() == 1; });
  peer.SendMessage(Push(1, /*skip=*/false), /*part=*/10000);
}

// An ordinary worker.
class Worker {
 public:
  Worker(const TestCluster& cluster, int rank)
      : gradient_(TestGradient(cluster.config().model(), rank, 0)), parameters_(gradient_.size()) {
    absl::StatusOr<std::unique_ptr<Exchange>> exchange = cluster.Connect(rank);
    INFO(exchange.status().ToString());
    REQUIRE(exchange.ok());
    exchange_ = *std::move(exchange);
    REQUIRE(exchange_->Pull(absl::MakeSpan(parameters_)).ok());
  }
  absl::Status Train() {
    return exchange_->PushPull(iteration_++, gradient_, absl::MakeSpan(parameters_));
  }
  absl::Status Leave() { return exchange_->Leave(absl::OkStatus()); }

 private:
  const std::vector<float> gradient_;
  std::vector<float> parameters_;
  std::unique_ptr<Exchange> exchange_;
  int64_t iteration_ = 0;
};

// Worker 0 is known to be lost, its rank free for another, and worker 1 never noticed.
void RequireOthersGoOn(TestCluster& cluster, Worker& other) {
  AwaitTrue([&] { return StatsOfPeer(cluster).state() == WorkerStats::LOST; });
  Worker again(cluster, 0);
  REQUIRE(again.Leave().ok());
  REQUIRE(other.Train().ok());
  REQUIRE(other.Leave().ok());
}

}  // namespace

TEST_CASE(
    "a shard does not read from a peer that does not read its replies, so its queue stays short") {
  const bool endless_window = GENERATE(false, true);
  const bool reads_single_bytes = GENERATE(false, true);
  CAPTURE(endless_window, reads_single_bytes);
  TestCluster cluster(LargeChunks("ASYNC"));
  const uint64_t chunks = cluster.config().plan().chunks().size();
  REQUIRE(chunks == 17);
  Worker other(cluster, 1);
  REQUIRE(other.Train().ok());  // so that the parameters are newer than the peer's version
  {
    Http2Peer peer = JoinedPeer(cluster, endless_window);
    // Their replies are 66 MB, more than any socket holds.
    constexpr uint64_t kPushes = 1000;
    for (uint64_t i = 0; i < kPushes; ++i) peer.SendMessage(Push(i, /*skip=*/true));

    // Until the shard takes no more of them for as long as worker 1 needs to train a little.
    uint64_t before = 0;
    uint64_t pushes = 0;
    do {
      before = pushes;
      for (int i = 0; i < 10; ++i) REQUIRE(other.Train().ok());
      if (reads_single_bytes) peer.ReadByte();
      const WorkerStats stats = StatsOfPeer(cluster);
      pushes = stats.skipped_pushes();
      // Replies that are not being written yet.
      REQUIRE(pushes <= stats.bytes_out() / kChunkBytes + chunks + 2);
    } while (pushes == 0 || pushes != before);
    CHECK(pushes < kPushes);
  }
  RequireOthersGoOn(cluster, other);
}

TEST_CASE("a push that stops in the middle of its chunk is not counted and harms nobody") {
  const std::string ending = GENERATE("closed connection", "end of the stream");
  CAPTURE(ending);
  TestCluster cluster(LargeChunks("ASYNC"));
  Worker other(cluster, 1);
  {
    Http2Peer peer = JoinedPeer(cluster);
    StopInTheMiddle(cluster, peer);
    REQUIRE(other.Train().ok());
    if (ending == "end of the stream") {
      peer.HalfClose();
      AwaitTrue([&] { return StatsOfPeer(cluster).state() == WorkerStats::LOST; });
    }
  }
  RequireOthersGoOn(cluster, other);
  CHECK(StatsOfPeer(cluster).skipped_pushes() == 1);
}

TEST_CASE("a shard can be shut down while a peer has stopped in the middle of its chunk") {
  TestCluster cluster(LargeChunks("ASYNC"));
  Http2Peer peer = JoinedPeer(cluster);
  StopInTheMiddle(cluster, peer);
  Worker other(cluster, 1);
  REQUIRE(other.Train().ok());
  cluster.server(0).Shutdown();
  CHECK(absl::IsUnavailable(other.Train()));
}

TEST_CASE("under SYNC a worker that stops in the middle of its chunk ends the run and is named") {
  TestCluster cluster(LargeChunks("SYNC"));
  Worker other(cluster, 1);
  {
    Http2Peer peer = JoinedPeer(cluster);
    StopInTheMiddle(cluster, peer);
  }
  const absl::Status status = other.Train();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()), Contains("worker 0 (test, ") && Contains("was lost"));
}

}  // namespace evenshard
