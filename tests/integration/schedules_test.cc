// When chunks travel: the schedules of the exchange, at the worker and at the shard.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/await.h"
#include "tests/testing/chunk_messages.h"
#include "tests/testing/cluster.h"
#include "tests/testing/raw_worker.h"
#include "worker/exchange/core/exchange_schedule.h"
#include "worker/training/trainer.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Never shut down: after writes that had to wait, the end of gRPC's last user can take the 10 s
// of a poller of gRPC's own.
const bool kGrpcStarted = (grpc_init(), true);

// The layers of kSmallConfig with tensors.
constexpr int kFront = 0, kMiddle = 2, kBack = 4;

// kSmallConfig with layers of 64 KB. Smaller gradients would wait for others to share a message.
std::string WideConfig() {
  return absl::StrReplaceAll(kSmallConfig, {{"channels: 40", "channels: 128"},
                                            {"out_features: 50", "out_features: 128"},
                                            {"out_features: 30", "out_features: 128"},
                                            {"out_features: 10", "out_features: 128"}});
}

std::string ScheduleOverride(const std::string& schedule) {
  return "exchange.schedule=" + schedule;
}

// As all its trainers leave them.
std::vector<float> TrainedParameters(const PlannedConfig& config) {
  TestCluster cluster(config);
  const RealClock clock;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int rank = 0; rank < config.workers(); ++rank) {
    auto trainer = Trainer::Create({.config = &cluster.config(),
                                    .rank = rank,
                                    .clock = &clock,
                                    .addresses = cluster.addresses(),
                                    .progress = {.output = stderr}});
    INFO(trainer.status().ToString());
    REQUIRE(trainer.ok());
    trainers.push_back(*std::move(trainer));
  }
  std::vector<absl::Status> outcomes(trainers.size(), absl::UnknownError("did not run"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < trainers.size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = trainers[rank]->Run().status(); });
  }
  for (std::thread& thread : threads) thread.join();
  RequireAllOk(outcomes);
  return cluster.Parameters();
}

// What one worker holds, driven by hand.
struct Worker {
  Worker(const TestCluster& cluster, int rank)
      : gradients(TestGradient(cluster.config().model(), rank, 0)), parameters(gradients.size()) {
    absl::StatusOr<std::unique_ptr<Exchange>> connected = cluster.Connect(rank);
    INFO(connected.status().ToString());
    REQUIRE(connected.ok());
    exchange = *std::move(connected);
    REQUIRE(exchange->Pull(absl::MakeSpan(parameters)).ok());
    schedule = std::make_unique<ExchangeSchedule>(
        ExchangeSchedule::Options{.config = &cluster.config(),
                                  .clock = &clock,
                                  .exchange = exchange.get(),
                                  .gradients = absl::MakeSpan(gradients),
                                  .parameters = absl::MakeSpan(parameters)});
  }
  void Begin() { REQUIRE(exchange->Begin(0, gradients, absl::MakeSpan(parameters)).ok()); }

  const RealClock clock;
  std::vector<float> gradients;
  std::vector<float> parameters;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<ExchangeSchedule> schedule;
};

uint64_t Updates(TestCluster& cluster) {
  uint64_t updates = 0;
  for (int shard = 0; shard < cluster.config().shards(); ++shard) {
    updates += cluster.server(shard).shard().Stats().updates();
  }
  return updates;
}

uint64_t ChunksOf(const PlannedConfig& config, int layer) {
  const Layer& of = config.model().layers()[layer];
  uint64_t chunks = 0;
  for (int i = 0; i < of.tensor_count; ++i) {
    chunks += config.plan().chunks_of_tensor(of.first_tensor + i).size();
  }
  return chunks;
}

}  // namespace

TEST_CASE("deterministic runs are bit-equal under every schedule, backend and placement") {
  const std::string backend = GENERATE(
      "CPU", "compute={backend: EMULATED emulated {device: 'rtx_2080_ti' time_dilation: 100}}");
  std::vector<std::string> overrides = {
      "workers=2", "update.deterministic=true", "optimizer={kind: MOMENTUM learning_rate: 0.1}",
      "training={batch_size: 8 iterations: 6}",
      // The shard stops reading of a worker that is ahead of another.
      "limits.held_bytes=1024"};
  std::string text = absl::StrReplaceAll(
      kSmallConfig, {{"  shard { address: \"127.0.0.1:0\" }\n", ""},
                     {"compute { backend: EMULATED }", "compute { threads: 1 }"}});
  if (backend == "CPU") {
    overrides.push_back("data={synthetic {images: 64}}");
  } else {
    overrides.push_back(backend);
  }
  std::vector<float> first;
  for (int shards = 1; shards <= 3; ++shards) {
    text += "  shard { address: \"127.0.0.1:0\" }\n";
    for (const std::string scheme : {"LAYER_BASED", "MEMORY_BASED", "STRIPED"}) {
      for (const std::string schedule : {"SEQUENTIAL", "BACKWARD", "FULL"}) {
        CAPTURE(backend, shards, scheme, schedule);
        std::vector<std::string> all = overrides;
        all.push_back("partition={scheme: " + scheme + "}");
        all.push_back(ScheduleOverride(schedule));
        const std::vector<float> trained = TrainedParameters(MustParse(text, all));
        if (first.empty()) first = trained;
        REQUIRE(trained == first);
      }
    }
  }
  const std::vector<float> untrained = TestCluster(MustParse(text, overrides)).Parameters();
  CHECK(untrained != first);
}

TEST_CASE(
    "SEQUENTIAL pushes nothing before everything is computed, and then waits for everything") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1", ScheduleOverride("SEQUENTIAL")}));
  Worker worker(cluster, 0);
  worker.schedule->Start(0);
  for (const int layer : {kFront, kMiddle, kBack}) {
    REQUIRE(worker.schedule->AwaitParameters(layer).ok());
  }
  for (const int layer : {kBack, kMiddle, kFront}) {
    REQUIRE(worker.schedule->GradientReady(layer).ok());
  }
  CHECK(worker.exchange->traffic().pushes == 0);
  REQUIRE(worker.schedule->Finish(/*contributes=*/true, /*everything=*/false).ok());
  CHECK(Updates(cluster) == cluster.config().plan().chunks().size());
  CHECK(worker.parameters == cluster.Parameters());
}

TEST_CASE("under BACKWARD and FULL a layer's gradient leaves before the next is computed") {
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  TestCluster cluster(MustParse(WideConfig(), {ScheduleOverride(schedule)}));
  Worker worker(cluster, 0), other(cluster, 1);
  worker.schedule->Start(0);
  REQUIRE(worker.schedule->GradientReady(kBack).ok());
  other.Begin();
  REQUIRE(other.exchange->Push(kBack).ok());
  REQUIRE(other.exchange->AwaitLayer(kBack).ok());  // with both workers' gradients
  CHECK(Updates(cluster) == ChunksOf(cluster.config(), kBack));
}

TEST_CASE("under FULL a layer's forward pass starts before later layers' parameters are back") {
  TestCluster cluster(MustParse(WideConfig(), {ScheduleOverride("FULL")}));
  Worker worker(cluster, 0), other(cluster, 1);
  worker.schedule->Start(0);
  for (const int layer : {kBack, kMiddle, kFront}) {
    REQUIRE(worker.schedule->GradientReady(layer).ok());
  }
  REQUIRE(worker.schedule->Finish(/*contributes=*/true, /*everything=*/false).ok());

  // What waits for the other worker cannot be back.
  other.Begin();
  REQUIRE(other.exchange->Push(kFront).ok());
  worker.schedule->Start(1);
  REQUIRE(worker.schedule->AwaitParameters(kFront).ok());
  CHECK(Updates(cluster) == ChunksOf(cluster.config(), kFront));
  REQUIRE(other.exchange->Push(kMiddle).ok());
  REQUIRE(other.exchange->Push(kBack).ok());
  REQUIRE(worker.schedule->AwaitParameters(kMiddle).ok());
  REQUIRE(worker.schedule->AwaitParameters(kBack).ok());
  REQUIRE(other.exchange->AwaitAll().ok());
  CHECK(worker.parameters == cluster.Parameters());
  CHECK(other.parameters == cluster.Parameters());
}

TEST_CASE("small gradients wait for others, until all are pushed or one of them is waited for") {
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  // A worker alone, whose pushes are answered at once.
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1", ScheduleOverride(schedule)}));
  Worker worker(cluster, 0);
  worker.Begin();
  REQUIRE(worker.exchange->Push(kMiddle).ok());
  REQUIRE(worker.exchange->Push(kBack).ok());
  REQUIRE(worker.exchange->AwaitLayer(kBack).ok());
  REQUIRE(worker.exchange->AwaitLayer(kMiddle).ok());
  REQUIRE(worker.exchange->Push(kFront).ok());
  REQUIRE(worker.exchange->AwaitAll().ok());
  CHECK(worker.parameters == cluster.Parameters());
}

TEST_CASE("a worker lost in the middle of an iteration ends the others, which name it") {
  const std::string schedule = GENERATE("BACKWARD", "FULL");
  const bool leaves = GENERATE(true, false);
  TestCluster cluster(MustParse(kSmallConfig, {ScheduleOverride(schedule)}));
  Worker worker(cluster, 0);
  worker.schedule->Start(0);
  for (const int layer : {kBack, kMiddle, kFront}) {
    REQUIRE(worker.schedule->GradientReady(layer).ok());
  }
  if (leaves) {
    Worker other(cluster, 1);
    other.Begin();
    REQUIRE(other.exchange->Push(kBack).ok());
  } else {
    RawWorker other(cluster, 1);
    other.Send();  // chunk 0, which is of the front layer
    ParameterChunk reply;
    REQUIRE(other.Receive(&reply));
    other.Vanish();
  }
  absl::Status status = worker.schedule->Finish(/*contributes=*/true, /*everything=*/false);
  if (status.ok()) {  // FULL
    worker.schedule->Start(1);
    status = worker.schedule->AwaitParameters(kMiddle);
  }
  INFO(status.ToString());
  CHECK_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), Contains("worker 1"));
  worker.exchange->Leave(status).IgnoreError();  // the shards have ended the run already
}

TEST_CASE("a worker can be stopped while its emulated device computes") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  TestCluster cluster(MustParse(
      kSmallConfig,
      {"workers=1", ScheduleOverride(schedule),
       // One layer would take longer than anybody waits.
       "compute={backend: EMULATED emulated {device: 'rtx_2080_ti' time_dilation: 1e15}}"}));
  const RealClock clock;
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .progress = {.output = stderr}});
  REQUIRE(trainer.ok());
  absl::StatusOr<TrainingSummary> result = absl::UnknownError("did not run");
  std::thread thread([&] { result = (*trainer)->Run(); });
  (*trainer)->Stop(absl::CancelledError("stopped by Terminated"));
  thread.join();
  CHECK(result.status() == absl::CancelledError("stopped by Terminated"));
}

TEST_CASE("a shard holds its replies while the worker asks for it, and then sends them in order") {
  struct Case {
    std::string schedule;
    std::vector<uint32_t> replies;
  };
  const Case expected = GENERATE(Case{"SEQUENTIAL", {3, 1, 2, 0}}, Case{"BACKWARD", {3, 1, 2, 0}},
                                 Case{"FULL", {0, 1, 2, 3}});
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1", ScheduleOverride(expected.schedule)}));
  ParameterStore& store = cluster.server(0).shard().store();
  RawWorker worker(cluster, 0);
  for (const uint32_t chunk : {3, 1, 2, 0}) {
    worker.chunk().set_chunk(chunk);
    worker.chunk().set_hold(chunk != 0);
    const uint64_t bytes = store.chunks()[store.IndexOf(chunk)].info().size * sizeof(float);
    worker.chunk().mutable_data()->assign(bytes, '\0');
    // Pushes are dealt with one after the other: that of chunk 2 comes after the reply to 1.
    if (chunk == 0) {
      while (cluster.server(0).shard().Stats().pushes() < 3) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      CHECK(cluster.server(0).shard().Stats().pulls() == 0);
    }
    worker.Send();
  }
  for (const uint32_t chunk : expected.replies) {
    ParameterChunk reply;
    REQUIRE(worker.Receive(&reply));
    CHECK(reply.chunk() == chunk);
    CHECK(reply.version() == 1);
  }
}

TEST_CASE("a worker that half-closes gets the replies that it asked to hold") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1"}));
  RawWorker worker(cluster, 0);
  worker.chunk().set_hold(true);
  worker.Send();
  worker.HalfClose();
  ParameterChunk reply;
  REQUIRE(worker.Receive(&reply));
  CHECK(reply.chunk() == 0);
  CHECK(worker.Refused().ok());
}

namespace {

// A shard that takes every worker. Its subclasses say what it does with pushes, and must call Stop
// in their destructors.
class FakeShard : public ParameterServer::Service {
 public:
  explicit FakeShard(int shard = 0) : shard_(shard) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  const std::string& address() const { return address_; }

  grpc::Status Join(grpc::ServerContext*, const JoinRequest*, JoinResponse* response) override {
    response->set_shard(shard_);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const LeaveRequest*, LeaveResponse*) override {
    return grpc::Status::OK;
  }

 protected:
  void Stop() { server_->Shutdown(); }

  // Returns the answer that hands the gradient back as the parameters.
  static ParameterChunk AnswerTo(const GradientChunk& chunk) {
    ParameterChunk answer;
    answer.set_chunk(chunk.chunk());
    answer.set_iteration(chunk.iteration());
    answer.set_version(1);
    answer.set_data(chunk.data());
    return answer;
  }

 private:
  const int shard_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// A shard that answers nothing on a stream before its last chunk, and reads nothing until it may.
class SlowShard final : public FakeShard {
 public:
  using FakeShard::FakeShard;
  ~SlowShard() override {
    if (!may_read.HasBeenNotified()) may_read.Notify();
    Stop();
  }

  absl::Notification may_read;
  std::atomic<int> held_chunks{0};  // read, on all streams
  std::atomic<int> last_chunks{0};
  std::atomic<int> after_the_last{0};

  grpc::Status Exchange(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<ParameterChunks, GradientChunks>* stream) override {
    stream->SendInitialMetadata();  // which a worker awaits before it joins
    may_read.WaitForNotification();
    std::vector<ParameterChunk> replies;
    bool answered = false;
    ChunkReader<GradientChunks> pushes;
    GradientChunk chunk;
    while (pushes.Read(*stream, &chunk)) {
      replies.push_back(AnswerTo(chunk));
      after_the_last += answered;
      held_chunks += chunk.hold();
      if (chunk.hold()) continue;
      answered = true;
      ++last_chunks;
      for (const ParameterChunk& reply : replies) stream->Write(MessageOf(reply));
    }
    return grpc::Status::OK;
  }
};

// A shard that notes the order in which chunks come, and reads nothing until it may.
class NotingShard final : public FakeShard {
 public:
  ~NotingShard() override { Stop(); }

  absl::Notification may_read;

  std::vector<uint32_t> Chunks() {
    absl::MutexLock lock(&mutex_);
    return chunks_;
  }

  grpc::Status Exchange(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<ParameterChunks, GradientChunks>* stream) override {
    stream->SendInitialMetadata();
    may_read.WaitForNotification();
    ChunkReader<GradientChunks> pushes;
    GradientChunk chunk;
    while (pushes.Read(*stream, &chunk)) {
      {
        absl::MutexLock lock(&mutex_);
        chunks_.push_back(chunk.chunk());
      }
      stream->Write(MessageOf(AnswerTo(chunk)));
    }
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mutex_;
  std::vector<uint32_t> chunks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

TEST_CASE("under FULL layers do not overtake each other until all are pushed, then front ones do") {
  // Three layers of 16 MB: far more than a stream that is not read takes.
  const PlannedConfig config = MustParse(R"(
    model {
      input { channels: 2048 height: 1 width: 1 }
      layer { name: "front" linear { out_features: 2048 bias: false } }
      layer { name: "middle" linear { out_features: 2048 bias: false } }
      layer { name: "back" linear { out_features: 2048 bias: false } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "127.0.0.1:0" }
    update { policy: SYNC }
    training { iterations: 1 }
    compute { backend: EMULATED }
    exchange { schedule: FULL }
    limits { chunk_bytes: 1048576 connections: 1 startup_seconds: 20 exchange_seconds: 60 }
  )");
  std::vector<uint32_t> pushed;  // in the order of Push: back, middle, front
  for (const int tensor : {2, 1, 0}) {
    const auto of_tensor = config.plan().chunks_of_tensor(tensor);
    pushed.insert(pushed.end(), of_tensor.begin(), of_tensor.end());
  }
  const bool front_waits_too = GENERATE(false, true);
  CAPTURE(front_waits_too);
  NotingShard shard;
  auto exchange = Exchange::Connect({.config = &config, .rank = 0, .addresses = {shard.address()}});
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  const std::vector<float> gradients(config.model().buffer_size(), 3);
  std::vector<float> parameters(config.model().buffer_size());
  REQUIRE((*exchange)->Begin(0, gradients, absl::MakeSpan(parameters)).ok());
  REQUIRE((*exchange)->Push(2).ok());
  REQUIRE((*exchange)->Push(1).ok());
  if (front_waits_too) {
    REQUIRE((*exchange)->Push(0).ok());
    shard.may_read.Notify();
  } else {
    shard.may_read.Notify();
    REQUIRE((*exchange)->AwaitLayer(2).ok());
    REQUIRE((*exchange)->AwaitLayer(1).ok());
    REQUIRE((*exchange)->Push(0).ok());
  }
  REQUIRE((*exchange)->AwaitAll().ok());
  CHECK((*exchange)->Leave(absl::OkStatus()).ok());

  const std::vector<uint32_t> chunks = shard.Chunks();
  REQUIRE(chunks.size() == pushed.size());
  const auto sorted = std::mismatch(chunks.begin(), chunks.end(), pushed.begin()).first;
  if (front_waits_too) {
    REQUIRE(sorted != chunks.end());
    CHECK(*sorted == 0);
    CHECK(std::is_sorted(sorted, chunks.end()));
  } else {
    CHECK(chunks == pushed);
  }
}

TEST_CASE("under SEQUENTIAL no reply is sent before all but the last pushes have been sent") {
  // 32 MB for each shard: far more than streams that are not read take.
  const PlannedConfig config = MustParse(R"(
    model {
      input { channels: 4096 height: 1 width: 1 }
      layer { name: "fc" linear { out_features: 4096 bias: false } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "127.0.0.1:0" }
    shard { address: "127.0.0.1:0" }
    update { policy: SYNC }
    training { iterations: 1 }
    compute { backend: EMULATED }
    exchange { schedule: SEQUENTIAL }
    limits {
      chunk_bytes: 1048576
      connections: 2
      startup_seconds: 20
      exchange_seconds: 60
    }
  )");
  REQUIRE(config.plan().chunks_of_shard(0).size() == 32);
  REQUIRE(config.plan().chunks_of_shard(1).size() == 32);
  SlowShard slow(0);
  SlowShard fast(1);
  fast.may_read.Notify();
  auto exchange = Exchange::Connect(
      {.config = &config, .rank = 0, .addresses = {slow.address(), fast.address()}});
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  const std::vector<float> gradients(config.model().buffer_size(), 3);
  std::vector<float> parameters(config.model().buffer_size());
  absl::Status outcome = absl::UnknownError("did not run");
  std::thread worker(
      [&] { outcome = (*exchange)->PushPull(0, gradients, absl::MakeSpan(parameters)); });
  AwaitTrue([&] { return fast.held_chunks == 30; });
  absl::SleepFor(absl::Milliseconds(100));  // time for what must not come
  CHECK(fast.last_chunks == 0);
  slow.may_read.Notify();
  worker.join();
  INFO(outcome.ToString());
  CHECK(outcome.ok());
  for (const SlowShard* shard : {&slow, &fast}) {
    CHECK(shard->held_chunks == 30);
    CHECK(shard->last_chunks == 2);
    CHECK(shard->after_the_last == 0);
  }
  CHECK(parameters == gradients);
  CHECK((*exchange)->Leave(absl::OkStatus()).ok());
}

}  // namespace evenshard
