// Exchange streams over real connections to a shard whose clock stands still.

#include "server/rpc/exchange_stream.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/float_buffer.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/testing/await.h"
#include "tests/testing/chunk_messages.h"

namespace evenshard {
namespace {

// Serves only Exchange, for the worker that the call's metadata names.
class ExchangeService final
    : public ParameterServer::WithRawCallbackMethod_Exchange<ParameterServer::Service> {
 public:
  ExchangeService(std::shared_ptr<Shard> shard, const Clock* clock)
      : shard_(std::move(shard)), clock_(clock) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~ExchangeService() override { server_->Shutdown(); }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    const grpc::string_ref text = context->client_metadata().find("rank")->second;
    const int rank = std::stoi(std::string(text.begin(), text.end()));
    const std::shared_ptr<ExchangeStream> stream =
        ExchangeStream::Create({.shard = shard_,
                                .push_threads = &push_threads_,
                                .worker = static_cast<uint32_t>(rank),
                                .incarnation = incarnation,
                                .join_follows = join_follows,
                                .opened = clock_->Now(),
                                .on_done = [this, alive = alive](ExchangeStream*) { ++done; }});
    {
      absl::MutexLock lock(&mutex_);
      latest_ = stream;
    }
    stream->Open();
    return stream.get();
  }

  std::shared_ptr<ExchangeStream> latest() {
    absl::MutexLock lock(&mutex_);
    return latest_.lock();
  }

  std::unique_ptr<ParameterServer::Stub> Stub() const {
    return ParameterServer::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                                                        grpc::InsecureChannelCredentials()));
  }

  std::atomic<uint64_t> incarnation{0};
  std::atomic<bool> join_follows{false};
  const std::shared_ptr<int> alive = std::make_shared<int>();  // every stream holds it
  std::atomic<int> done{0};

 private:
  const std::shared_ptr<Shard> shard_;
  const Clock* const clock_;
  ChunkThreads push_threads_{ChunkOrder::kArrival};
  absl::Mutex mutex_;
  std::weak_ptr<ExchangeStream> latest_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A worker's end of a stream.
struct Peer {
  Peer(const ExchangeService& service, int rank) : stub(service.Stub()) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.AddMetadata("rank", std::to_string(rank));
    stream = stub->Exchange(&context);
    chunk.set_worker(rank);
    chunk.set_incarnation(ShardFixture::Incarnation(rank));
    chunk.set_data(std::string(4 * sizeof(float), '\0'));
  }

  grpc::Status End() {
    stream->WritesDone();
    ParameterChunks reply;
    while (stream->Read(&reply)) {
    }
    return stream->Finish();
  }

  std::unique_ptr<ParameterServer::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<GradientChunks, ParameterChunks>> stream;
  GradientChunk chunk;  // a push of chunk 0
};

struct Fixture : ShardFixture {
  // With a lead of 0, the worker that is ahead is paced until the clock advances.
  void Serve(int workers) {
    Start(workers, {"limits.lead_bytes=0"});
    service = std::make_unique<ExchangeService>(shard, &clock);
  }
  std::unique_ptr<ExchangeService> service;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "no stream outlives its RPC, even if it was paced") {
  Serve(2);
  {
    std::vector<std::unique_ptr<Peer>> peers;
    for (int rank = 0; rank < 2; ++rank) {
      service->incarnation = Incarnation(rank);
      peers.push_back(std::make_unique<Peer>(*service, rank));
      peers.back()->stream->WaitForInitialMetadata();
    }
    for (uint64_t iteration = 0; iteration < 20; ++iteration) {
      for (const auto& peer : peers) {
        peer->chunk.set_iteration(iteration);
        REQUIRE(peer->stream->Write(MessageOf(peer->chunk)));
      }
      for (const auto& peer : peers) {
        ParameterChunks reply;
        REQUIRE(peer->stream->Read(&reply));
      }
    }
    CHECK(shard->PushWait(0) + shard->PushWait(1) == absl::ZeroDuration());  // none is ahead now
    for (const auto& peer : peers) CHECK(peer->End().ok());
  }
  AwaitTrue([&] { return service->done == 2; });
  AwaitTrue([&] { return service->alive.use_count() == 1; });
}

TEST_CASE_METHOD(Fixture, "replies that are held do not stop the push that lets them go") {
  Serve(1);
  service->incarnation = Incarnation(0);
  Peer peer(*service, 0);
  // More than the shard's one chunk, as of a worker that did not wait for an iteration's replies.
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    peer.chunk.set_iteration(iteration);
    peer.chunk.set_hold(iteration < 2);
    REQUIRE(peer.stream->Write(MessageOf(peer.chunk)));
  }
  int replies = 0;
  ParameterChunks message;
  while (replies < 3 && peer.stream->Read(&message)) replies += message.chunk_size();
  CHECK(replies == 3);
  CHECK(peer.End().ok());
}

TEST_CASE_METHOD(Fixture, "who names version 0 may have nothing, and gets the parameters") {
  Serve(1);
  service->incarnation = Incarnation(0);
  Peer peer(*service, 0);
  const std::string gradient = peer.chunk.data();
  const auto exchange = [&](uint64_t iteration, bool skips, uint64_t base_version) {
    peer.chunk.set_iteration(iteration);
    peer.chunk.set_base_version(base_version);
    peer.chunk.set_skip(skips);
    peer.chunk.set_data(skips ? "" : gradient);
    REQUIRE(peer.stream->Write(MessageOf(peer.chunk)));
    ParameterChunks reply;
    REQUIRE(peer.stream->Read(&reply));
    return reply.chunk(0);
  };
  const ParameterChunk skipped = exchange(0, true, 0);
  CHECK(skipped.version() == 0);
  CHECK_FALSE(skipped.unchanged());
  CHECK(skipped.data().size() == gradient.size());
  CHECK(exchange(1, false, 0).version() == 1);
  const ParameterChunk unchanged = exchange(2, true, 1);
  CHECK(unchanged.unchanged());
  CHECK(unchanged.data().empty());
  CHECK(peer.End().ok());
}

TEST_CASE_METHOD(Fixture, "a stream of a worker that has not joined is refused") {
  Serve(1);
  service->incarnation = 4711;
  const grpc::Status status = Peer(*service, 0).End();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message() == "worker 0 has not joined with this incarnation");
}

TEST_CASE_METHOD(Fixture, "a stream whose Join follows waits for it, and then holds the rank") {
  Serve(1);
  REQUIRE(Leave(0).ok());
  service->incarnation = 4711;
  service->join_follows = true;
  Peer peer(*service, 0);
  peer.stream->WaitForInitialMetadata();
  const std::shared_ptr<ExchangeStream> stream = service->latest();
  REQUIRE(stream != nullptr);

  SECTION("and is ended if it waits for too long") {
    stream->EndWaiting(clock.Now());  // opened no earlier
    clock.Advance(absl::Seconds(1));
    stream->EndWaiting(clock.Now());
    const grpc::Status status = peer.End();
    CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(status.error_message() == "worker 0 opened this stream and has not joined since");
  }
  SECTION("and serves it") {
    REQUIRE(shard->Join(RequestFor(0, 4711), "test").ok());
    stream->Open();
    stream->EndWaiting(clock.Now() + absl::Hours(1));  // it no longer waits
    peer.chunk.set_incarnation(4711);
    REQUIRE(peer.stream->Write(MessageOf(peer.chunk)));
    ParameterChunks reply;
    REQUIRE(peer.stream->Read(&reply));
    CHECK(reply.chunk(0).version() == 1);
    CHECK(peer.End().ok());
  }
  SECTION("and its end is the worker's loss, though it has pushed nothing") {
    REQUIRE(shard->Join(RequestFor(0, 4711), "test").ok());
    stream->Open();
    peer.context.TryCancel();
    AwaitTrue([&] { return service->done == 1; });
    REQUIRE(failures.size() == 1);
    CHECK_THAT(std::string(failures[0].message()),
               Catch::Contains("worker 0 (test") && Catch::Contains("ended before it left"));
  }
  SECTION("or ends if the worker dies first") {
    peer.context.TryCancel();
    AwaitTrue([&] { return service->done == 1; });
    CHECK(failures.empty());
  }
}

TEST_CASE_METHOD(Fixture, "a stream ends after its last write to the worker's memory") {
  Serve(2);
  REQUIRE(Leave(0).ok());
  auto gradients = FloatBuffer::AllocateShared(config->model().buffer_size());
  auto parameters = FloatBuffer::AllocateShared(config->model().buffer_size());
  REQUIRE(gradients.ok());
  REQUIRE(parameters.ok());
  JoinRequest request = RequestFor(0, 4711);
  *request.mutable_shared_buffers()->mutable_gradients() = gradients->place();
  *request.mutable_shared_buffers()->mutable_parameters() = parameters->place();
  REQUIRE(shard->Join(request, "test").ok());
  service->incarnation = 4711;
  Peer peer(*service, 0);
  peer.stream->WaitForInitialMetadata();
  const std::shared_ptr<ExchangeStream> stream = service->latest();
  REQUIRE(stream != nullptr);
  stream->Open();  // it is open when this returns
  const auto pass_time = [&] {
    for (int i = 0; i < 20; ++i) CHECK_FALSE(Peer(*service, 1).End().ok());
  };

  StoredChunk& chunk = shard->store().chunks()[0];
  std::atomic<bool> begins = false;
  std::atomic<bool> has_ended = false;
  std::thread replying, reading;
  {
    absl::MutexLock lock(&chunk.mutex);
    replying = std::thread([&] {
      begins = true;
      stream->Reply(0, 0, false);  // reads the chunk
    });
    AwaitTrue([&] { return begins.load(); });
    pass_time();
    reading = std::thread([&] {
      peer.End();
      has_ended = true;
    });
    stream->End(absl::UnavailableError("the test"));
    pass_time();
    CHECK_FALSE(has_ended);
  }
  replying.join();
  reading.join();
  const auto written = parameters->span().subspan(chunk.info().model_offset, chunk.info().size);
  CHECK(std::vector<float>(written.begin(), written.end()) == Parameters());
}

}  // namespace evenshard
