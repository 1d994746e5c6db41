// The exchange through memory that worker and shard share, over real gRPC connections in one
// process: that it is the exchange by messages, and when it is not used.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error_kind.h"
#include "common/base/float_buffer.h"
#include "grpcpp/create_channel.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/chunk_messages.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr int kIterations = 4;

using Buffers = Exchange::Buffers;

// `shared`: with a config that allows it.
Buffers MakeBuffers(const TestCluster& cluster, bool shared = true) {
  const PlannedConfig config =
      shared ? cluster.config() : MustParse(kSmallConfig, {"exchange.shared_memory=false"});
  absl::StatusOr<Buffers> buffers = Exchange::AllocateBuffers(config, cluster.addresses());
  INFO(buffers.status());
  REQUIRE(buffers.ok());
  return *std::move(buffers);
}

void SetGradients(const std::vector<float>& values, Buffers* buffers) {
  std::copy(values.begin(), values.end(), buffers->gradients.data());
}

// How often this process has mapped a buffer, as its worker and as shards.
int Mappings(const FloatBuffer& buffer) {
  std::ifstream maps("/proc/self/maps");
  int mappings = 0;
  for (std::string line; std::getline(maps, line);) {
    mappings += line.find(buffer.place().name()) != std::string::npos;
  }
  return mappings;
}

absl::StatusOr<std::unique_ptr<Exchange>> Connect(const TestCluster& cluster, int rank,
                                                  Buffers& buffers) {
  return Exchange::Connect({.config = &cluster.config(),
                            .rank = rank,
                            .addresses = cluster.addresses(),
                            .buffers = &buffers});
}

// Whether every shard says that it reads and writes in the memory of `rank`.
bool IsShared(TestCluster& cluster, int rank) {
  std::optional<bool> shared;
  for (int shard = 0; shard < cluster.config().shards(); ++shard) {
    const bool here = cluster.server(shard).shard().Stats().worker(rank).shared_memory();
    CHECK(shared.value_or(here) == here);
    shared = here;
  }
  return *shared;
}

struct Trained {
  std::vector<float> masters;
  std::vector<float> received;  // by worker 0
};

// Trains with test gradients as every worker; `shares` says which of them share their buffers.
Trained Train(const PlannedConfig& config, const std::function<bool(int rank)>& shares) {
  TestCluster cluster(config);
  const Model& model = config.model();
  Trained trained;
  std::vector<std::thread> threads;
  std::vector<absl::Status> outcomes(config.workers());
  for (int rank = 0; rank < config.workers(); ++rank) {
    // Made here, because Catch2's assertions are for one thread.
    threads.emplace_back([&, rank, buffers = MakeBuffers(cluster, shares(rank))]() mutable {
      auto exchange = Connect(cluster, rank, buffers);
      absl::Status status = exchange.status();
      if (status.ok()) status = (*exchange)->Pull(buffers.parameters.span());
      for (int i = 0; i < kIterations && status.ok(); ++i) {
        SetGradients(TestGradient(model, rank, i), &buffers);
        // Worker 1 contributes nothing to the second update.
        const bool skips = rank == 1 && i == 1;
        status =
            (*exchange)->PushPull(i, skips ? absl::Span<const float>() : buffers.gradients.span(),
                                  buffers.parameters.span());
      }
      if (status.ok()) status = (*exchange)->Leave(absl::OkStatus());
      outcomes[rank] = status;
      if (rank == 0) {
        trained.received.assign(buffers.parameters.span().begin(), buffers.parameters.span().end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RequireAllOk(outcomes);
  for (int rank = 0; rank < config.workers(); ++rank)
    CHECK(IsShared(cluster, rank) == shares(rank));
  trained.masters = cluster.Parameters();
  return trained;
}

PlannedConfig DeterministicConfig(std::vector<std::string> overrides = {}) {
  overrides.push_back("workers=3");
  overrides.push_back("update.deterministic=true");
  return MustParse(kSmallConfig, overrides);
}

}  // namespace

TEST_CASE("an exchange through shared memory gives the same bits as one by messages") {
  const std::string partition =
      GENERATE("{scheme: MEMORY_BASED}", "{scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN}");
  const PlannedConfig config = DeterministicConfig({"partition=" + partition});
  const Trained by_messages = Train(config, [](int) { return false; });
  const Trained shared = Train(config, [](int) { return true; });
  const Trained mixed = Train(config, [](int rank) { return rank == 1; });
  CHECK(shared.masters == by_messages.masters);
  CHECK(shared.received == by_messages.received);
  CHECK(shared.received == shared.masters);
  CHECK(mixed.masters == by_messages.masters);
}

TEST_CASE("asynchronous workers exchange through shared memory") {
  const PlannedConfig config = MustParse(kSmallConfig, {"workers=1", "update.policy=ASYNC"});
  const Trained trained = Train(config, [](int) { return true; });
  CHECK(trained.received == trained.masters);
  CHECK(trained.masters == Train(config, [](int) { return false; }).masters);
}

TEST_CASE("a restarted worker shares its new memory") {
  const PlannedConfig config = MustParse(kSmallConfig, {"workers=1", "update.policy=ASYNC"});
  TestCluster cluster(config);
  for (int start = 0; start < 2; ++start) {
    Buffers buffers = MakeBuffers(cluster);
    auto exchange = Connect(cluster, 0, buffers);
    REQUIRE(exchange.ok());
    CHECK((*exchange)->next_iteration() == start);
    REQUIRE((*exchange)->Pull(buffers.parameters.span()).ok());
    SetGradients(TestGradient(config.model(), 0, start), &buffers);
    REQUIRE((*exchange)->PushPull(start, buffers.gradients.span(), buffers.parameters.span()).ok());
    const std::vector<float> masters = cluster.Parameters();
    CHECK(std::equal(masters.begin(), masters.end(), buffers.parameters.data()));
    CHECK(IsShared(cluster, 0));
    REQUIRE((*exchange)->Leave(absl::OkStatus()).ok());
  }
}

TEST_CASE("a config can forbid shared memory, and only FLOAT32 both ways uses it") {
  const std::string forbids =
      GENERATE("exchange.shared_memory=false", "exchange.gradient_encoding=FLOAT16",
               "exchange.gradient_encoding=INT4", "exchange.parameter_encoding=BFLOAT16");
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1", forbids}));
  Buffers buffers = MakeBuffers(cluster);
  auto exchange = Connect(cluster, 0, buffers);
  REQUIRE(exchange.ok());
  CHECK(!IsShared(cluster, 0));
  REQUIRE((*exchange)->Pull(buffers.parameters.span()).ok());
  CHECK((*exchange)->PushPull(0, buffers.gradients.span(), buffers.parameters.span()).ok());
}

TEST_CASE("a shard unmaps a worker's memory with its streams, also when the run fails") {
  // Deterministic: what worker 1 pushes is kept for worker 0, who never pushes.
  TestCluster cluster(MustParse(kSmallConfig, {"update.deterministic=true"}));
  Buffers buffers = MakeBuffers(cluster);
  Buffers others = MakeBuffers(cluster);
  auto first = Connect(cluster, 0, others);
  REQUIRE(first.ok());
  {
    auto exchange = Connect(cluster, 1, buffers);
    REQUIRE(exchange.ok());
    REQUIRE((*exchange)->Begin(0, buffers.gradients.span(), buffers.parameters.span()).ok());
    for (int layer = 0; layer < 5; layer += 2) REQUIRE((*exchange)->Push(layer).ok());
    CHECK(Mappings(buffers.gradients) == 1 + cluster.config().shards());
    AwaitTrue([&] {  // all is with the shards
      uint64_t pushes = 0;
      for (int shard = 0; shard < cluster.config().shards(); ++shard) {
        pushes += cluster.server(shard).shard().Stats().pushes();
      }
      return pushes == cluster.config().plan().chunks().size();
    });
    (*exchange)->Leave(absl::CancelledError("the test ends it")).IgnoreError();
  }
  AwaitTrue([&] { return Mappings(buffers.gradients) == 1 && Mappings(buffers.parameters) == 1; });
  const absl::Status aborted =
      (*first)->PushPull(0, others.gradients.span(), others.parameters.span());
  CHECK(absl::IsAborted(aborted));
  CHECK(KindOf(aborted) == ErrorDetail::RUN_FAILED);
}

TEST_CASE("other buffers than the shared ones are refused") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1"}));
  Buffers buffers = MakeBuffers(cluster);
  Buffers others = MakeBuffers(cluster);
  auto exchange = Connect(cluster, 0, buffers);
  REQUIRE(exchange.ok());
  CHECK(absl::IsInvalidArgument(
      (*exchange)->PushPull(0, others.gradients.span(), buffers.parameters.span())));
  CHECK(absl::IsInvalidArgument(
      (*exchange)->PushPull(0, buffers.gradients.span(), others.parameters.span())));
  CHECK((*exchange)->PushPull(0, buffers.gradients.span(), buffers.parameters.span()).ok());
}

namespace {

// A worker made by hand, which offers what it likes.
class Offering {
 public:
  explicit Offering(const TestCluster& cluster)
      : stub_(ParameterServer::NewStub(
            grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()))) {
    request_ = cluster.RequestToJoin(/*rank=*/0, /*incarnation=*/4711);
  }

  // Whether the shard has mapped them; otherwise it has said why not, in `refusal`.
  bool IsTaken(const SharedBuffer& gradients, const SharedBuffer& parameters) {
    *request_.mutable_shared_buffers()->mutable_gradients() = gradients;
    *request_.mutable_shared_buffers()->mutable_parameters() = parameters;
    grpc::ClientContext context;
    JoinResponse response;
    const grpc::Status status = stub_->Join(&context, request_, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    refusal = response.shared_buffers_refusal();
    CHECK(response.shared_buffers() == refusal.empty());
    return response.shared_buffers();
  }

  std::string refusal;

  // The error with which the shard ends a stream on which `chunk` is pushed.
  grpc::Status Refusal(GradientChunk chunk) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.AddMetadata("ps-worker", "0");
    context.AddMetadata("ps-incarnation", "4711");
    const auto stream = stub_->Exchange(&context);
    chunk.set_incarnation(4711);
    stream->Write(MessageOf(chunk));
    ParameterChunks reply;
    while (stream->Read(&reply)) {
    }
    return stream->Finish();
  }

 private:
  std::unique_ptr<ParameterServer::Stub> stub_;
  JoinRequest request_;
};

}  // namespace

TEST_CASE("missing buffers and buffers that do not fit the model are refused") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1"}));
  const Buffers buffers = MakeBuffers(cluster);
  const absl::StatusOr<FloatBuffer> small = FloatBuffer::AllocateShared(16);
  REQUIRE(small.ok());
  Offering worker(cluster);
  const SharedBuffer& gradients = buffers.gradients.place();
  const SharedBuffer& parameters = buffers.parameters.place();
  CHECK(!worker.IsTaken(small->place(), parameters));
  CHECK_THAT(worker.refusal,
             Contains("gradients: the shared buffer ps-") && Contains("has 64 bytes"));
  CHECK(!worker.IsTaken(gradients, small->place()));
  SharedBuffer another = parameters;
  another.set_name(gradients.name());
  CHECK(!worker.IsTaken(gradients, another));
  another = parameters;
  another.set_process(0);
  CHECK(!worker.IsTaken(gradients, another));
  CHECK(!worker.IsTaken(gradients, SharedBuffer()));
  CHECK_THAT(worker.refusal, Contains("parameters: ") && Contains("ps- and 16 hexadecimal digits"));
  CHECK(worker.IsTaken(gradients, parameters));
}

TEST_CASE("what a shard gets on a stream of shared memory is checked") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1"}));
  Buffers buffers = MakeBuffers(cluster);
  Offering worker(cluster);
  REQUIRE(worker.IsTaken(buffers.gradients.place(), buffers.parameters.place()));
  GradientChunk chunk;
  SECTION("data beside the memory") {
    chunk.set_data(std::string(256 * sizeof(float), '\0'));
    const grpc::Status refused = worker.Refusal(chunk);
    CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(refused.error_message(), Contains("pushed 1024 bytes of chunk 0") &&
                                            Contains("read in the worker's own memory"));
  }
  SECTION("a chunk of no shard") {
    chunk.set_chunk(1000000);
    const grpc::Status refused = worker.Refusal(chunk);
    CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(refused.error_message(), Contains("does not own"));
  }
  SECTION("a value that is not finite") {
    const Chunk& first = cluster.config().plan().chunks()[0];
    buffers.gradients.data()[first.model_offset + 3] = NAN;
    const grpc::Status refused = worker.Refusal(chunk);
    CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(refused.error_message(), Contains("not finite") && Contains("element 3"));
  }
}

}  // namespace evenshard
