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
    return stream;
  }

  void Open() { stream_.load()->StartSendInitialMetadata(); }
  ProcessId id() const {
    ProcessId id;
    id.set_address(absl::StrCat("127.0.0.1:", port_));
    return id;
  }
  bool is_called() const { return stream_ != nullptr; }
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
  std::atomic<int> messages_{0};
};

class IgnoringReceiver final : public ReplicaStream::Receiver {
  void Confirmed(const ReplicaReceipt&) override {}
  void Ended(const absl::Status&) override {}
};

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
  IgnoringReceiver receiver;
  const std::unique_ptr<ReplicaStream> stream =
      client.Open(/*slot=*/0, /*view=*/1, ProcessId(), replica.id(), &receiver);
  for (int i = 0; i < 3; ++i) stream->Send(State());
  AwaitTrue([&] { return replica.is_called(); });
  // Long enough for what is sent too early to come; a slow machine only lets the test pass.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(replica.messages() == 0);
  replica.Open();
  AwaitTrue([&] { return replica.messages() == 3; });
  stream->Send(State());
  AwaitTrue([&] { return replica.messages() == 4; });
}

}  // namespace
}  // namespace evenshard
