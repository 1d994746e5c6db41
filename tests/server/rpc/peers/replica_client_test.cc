#include "server/rpc/peers/replica_client.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/net/raw_call.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/replication.grpc.pb.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/testing/await.h"

namespace evenshard {
namespace {

// Reads at once, but opens a stream only when it is told to, and confirms nothing.
class SlowReplica final
    : public Replication::WithRawCallbackMethod_Replicate<Replication::Service> {
 public:
  SlowReplica() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~SlowReplica() override { server_->Shutdown(); }

  BidiReactor* Replicate(CallContext*) override {
    Stream* const stream = new Stream(this);
    stream_ = stream;
    ++calls_;
    return stream;
  }

  void Open() { stream_.load()->StartSendInitialMetadata(); }
  int port() const { return port_; }
  int calls() const { return calls_; }
  int messages() const { return messages_; }

 private:
  class Stream final : public BidiReactor {
   public:
    explicit Stream(SlowReplica* replica) : replica_(replica) { StartRead(&read_); }

   private:
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      ++replica_->messages_;
      StartRead(&read_);
    }
    void OnDone() override { delete this; }

    SlowReplica* const replica_;
    MessageBytes read_;
  };

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<Stream*> stream_{nullptr};
  std::atomic<int> calls_{0};
  std::atomic<int> messages_{0};
};

class CountingReceiver final : public ReplicaStream::Receiver {
 public:
  std::atomic<int> ended{0};

 private:
  void Confirmed(const ReplicaReceipt&) override {}
  void Ended(const absl::Status&) override { ++ended; }
};

ProcessId At(const std::string& address) {
  ProcessId id;
  id.set_address(address);
  return id;
}

ReplicaMessage State() {
  ReplicaMessage message;
  message.header.set_is_state(true);
  return message;
}

// Whoever is not known yet may send little (limits.strangers.asking_burst_bytes).
TEST_CASE("nothing is sent to a replica before it has opened the stream") {
  SlowReplica replica;
  const ClusterConfig config;
  ReplicaClient client(&config);
  CountingReceiver receiver;
  const std::unique_ptr<ReplicaStream> stream =
      client.Open(/*slot=*/0, /*lane=*/0, /*view=*/1, ProcessId(),
                  At(absl::StrCat("127.0.0.1:", replica.port())), &receiver);
  for (int i = 0; i < 3; ++i) stream->Send(State());
  AwaitTrue([&] { return replica.calls() == 1; });
  // Long enough for what is sent too early to come; a slow machine only lets the test pass.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(replica.messages() == 0);
  replica.Open();
  AwaitTrue([&] { return replica.messages() == 3; });
  stream->Send(State());
  AwaitTrue([&] { return replica.messages() == 4; });
}

TEST_CASE("a lane's streams follow each other on one connection until the slot disconnects") {
  SlowReplica replica;
  TcpProxy counter(replica.port());
  const ProcessId copy = At(counter.endpoint());
  const ClusterConfig config;
  ReplicaClient client(&config);
  CountingReceiver receiver;
  const auto open = [&](int slot, int lane, uint64_t view) {
    const int before = replica.calls();
    auto stream = client.Open(slot, lane, view, ProcessId(), copy, &receiver);
    AwaitTrue([&] { return replica.calls() == before + 1; });
    return stream;
  };
  for (uint64_t view = 1; view <= 3; ++view) open(/*slot=*/0, /*lane=*/0, view);
  CHECK(counter.connections() == 1);
  open(/*slot=*/0, /*lane=*/1, /*view=*/3);
  CHECK(counter.connections() == 2);
  open(/*slot=*/1, /*lane=*/0, /*view=*/3);
  CHECK(counter.connections() == 3);
  client.Disconnect(/*slot=*/0);
  open(/*slot=*/1, /*lane=*/0, /*view=*/4);
  CHECK(counter.connections() == 3);
  open(/*slot=*/0, /*lane=*/0, /*view=*/4);
  CHECK(counter.connections() == 4);
}

TEST_CASE("a lane connects again after its connection broke, and when the replica is there") {
  SlowReplica replica;
  TcpProxy proxy(TcpProxy::Silent{replica.port()});
  const ProcessId copy = At(proxy.endpoint());
  const ClusterConfig config;
  ReplicaClient client(&config);
  CountingReceiver receiver;
  std::unique_ptr<ReplicaStream> stream;
  const auto open = [&] {
    stream = client.Open(/*slot=*/0, /*lane=*/0, /*view=*/1, ProcessId(), copy, &receiver);
  };
  for (int tries = 1; tries <= 3; ++tries) {
    open();
    AwaitTrue([&] { return receiver.ended == tries; });
  }
  proxy.Listen();
  for (int calls = 1; calls <= 2; ++calls) {
    AwaitTrue([&] {
      const int ended = receiver.ended;
      open();
      AwaitTrue([&] { return replica.calls() == calls || receiver.ended > ended; });
      return replica.calls() == calls;
    });
    const int ended = receiver.ended;
    proxy.Cut();
    AwaitTrue([&] { return receiver.ended > ended; });
  }
  CHECK(proxy.connections() == 2);
}

}  // namespace
}  // namespace evenshard
