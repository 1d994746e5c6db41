// Connections that break while a worker and its shards exchange: nothing is lost or counted twice.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/cluster.h"
#include "tests/testing/cutting_proxy.h"
#include "worker/exchange/exchange.h"

namespace ps {
namespace {

using Catch::Contains;

constexpr int kIterations = 60;

// Never shut down: the end of gRPC's last user can take the 10 s of a poller of gRPC's own.
const bool kGrpcStarted = (grpc_init(), true);

// A shard for one worker that subtracts each gradient from its parameters, once for each iteration.
class SubtractingShard final : public ParameterServer::Service {
 public:
  SubtractingShard(const Config* config, int shard)
      : config_(*config),
        shard_(shard),
        next_(config->plan().chunks().size()),
        parameters_(config->model().buffer_size()) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~SubtractingShard() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  int64_t joins() const { return joins_; }
  int64_t repeats() const { return repeats_; }
  void LoseState() { history_ = 2; }
  void Refuse(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    refusal_ = status;
  }

  grpc::Status Join(grpc::ServerContext*, const JoinRequest*, JoinResponse* response) override {
    ++joins_;
    response->set_shard(shard_);
    response->set_history(history_);
    absl::MutexLock lock(&mutex_);
    return refusal_;
  }
  grpc::Status Leave(grpc::ServerContext*, const LeaveRequest*, LeaveResponse*) override {
    return has_left_.exchange(true)
               ? grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "does not hold the rank")
               : grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext*, const PullRequest*,
                    grpc::ServerWriter<ParameterChunk>* writer) override {
    for (const uint32_t chunk : config_.plan().chunks_of_shard(shard_)) {
      absl::MutexLock lock(&mutex_);
      writer->Write(Answer(chunk, 0));
    }
    return grpc::Status::OK;
  }
  grpc::Status Exchange(grpc::ServerContext*,
                        grpc::ServerReaderWriter<ParameterChunk, GradientChunk>* stream) override {
    stream->SendInitialMetadata();
    GradientChunk push;
    while (stream->Read(&push)) {
      ParameterChunk answer;
      {
        absl::MutexLock lock(&mutex_);
        uint64_t& next = next_[push.chunk()];
        if (push.iteration() == next) {
          ++next;
          Subtract(push);
        } else if (push.iteration() + 1 == next) {
          ++repeats_;
        } else {
          return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "cannot be at this iteration");
        }
        answer = Answer(push.chunk(), push.iteration());
      }
      stream->Write(answer);
    }
    return grpc::Status::OK;
  }

 private:
  void Subtract(const GradientChunk& push) {
    const Chunk& chunk = config_.plan().chunks()[push.chunk()];
    const auto* gradient = reinterpret_cast<const UnalignedFloat*>(push.data().data());
    for (int64_t i = 0; i < chunk.size; ++i) parameters_[chunk.model_offset + i] -= gradient[i];
  }
  ParameterChunk Answer(uint32_t id, uint64_t iteration) const {
    const Chunk& chunk = config_.plan().chunks()[id];
    ParameterChunk answer;
    answer.set_chunk(id);
    answer.set_iteration(iteration);
    answer.set_version(next_[id]);
    answer.set_data(reinterpret_cast<const char*>(parameters_.data() + chunk.model_offset),
                    chunk.size * sizeof(float));
    return answer;
  }

  const Config& config_;
  const int shard_;
  std::atomic<int64_t> joins_{0};
  std::atomic<int64_t> repeats_{0};
  std::atomic<uint64_t> history_{1};
  std::atomic<bool> has_left_{false};
  absl::Mutex mutex_;
  grpc::Status refusal_;
  std::vector<uint64_t> next_;  // by chunk: the iteration to subtract
  std::vector<float> parameters_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

struct Shards {
  explicit Shards(const std::vector<std::string>& overrides)
      : config(MustParse(kSmallConfig, overrides)) {
    for (int shard = 0; shard < config.shards(); ++shard) {
      shards.push_back(std::make_unique<SubtractingShard>(&config, shard));
    }
  }
  absl::StatusOr<std::unique_ptr<Exchange>> Connect(const std::vector<std::string>& addresses) {
    return Exchange::Connect({.config = &config, .rank = 0, .addresses = addresses});
  }

  const Config config;
  std::vector<std::unique_ptr<SubtractingShard>> shards;
};

}  // namespace

TEST_CASE("a worker whose connections break at any moment trains as if they had not") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD", "FULL");
  const uint64_t seed = std::random_device()();
  CAPTURE(schedule, seed);
  Shards run({"workers=1", "exchange.schedule=" + schedule, "limits.connections=2"});
  std::vector<std::unique_ptr<CuttingProxy>> proxies;
  std::vector<std::string> addresses;
  for (const auto& shard : run.shards) {
    proxies.push_back(std::make_unique<CuttingProxy>(shard->address(), seed + proxies.size(),
                                                     /*cuts=*/25, /*most_bytes=*/60'000));
    addresses.push_back(proxies.back()->address());
  }
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = run.Connect(addresses);
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());

  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size(), 5);
  std::vector<float> expected(model.buffer_size());
  REQUIRE((*exchange)->Pull(absl::MakeSpan(parameters)).ok());
  for (int i = 0; i < kIterations; ++i) {
    // Its memory is used again: what is pushed late would push another gradient.
    std::vector<float> gradient = TestGradient(model, 0, i);
    for (const Tensor& tensor : model.tensors()) {
      for (int64_t k = tensor.offset; k < tensor.offset + tensor.size; ++k) {
        expected[k] -= gradient[k];
      }
    }
    absl::Status status;
    if (schedule == "SEQUENTIAL") {
      status = (*exchange)->PushPull(i, gradient, absl::MakeSpan(parameters));
    } else {
      status = (*exchange)->Begin(i, gradient, absl::MakeSpan(parameters));
      for (const int layer : {4, 2, 0}) (*exchange)->Push(layer);
      for (const int layer : {0, 2, 4}) status.Update((*exchange)->AwaitLayer(layer));
    }
    INFO(status.ToString());
    REQUIRE(status.ok());
    for (const Tensor& tensor : model.tensors()) {
      REQUIRE(std::equal(expected.begin() + tensor.offset,
                         expected.begin() + tensor.offset + tensor.size,
                         parameters.begin() + tensor.offset));
    }
    std::fill(gradient.begin(), gradient.end(), 1e6f);
  }
  const absl::Status left = (*exchange)->Leave(absl::OkStatus());
  INFO(left.ToString());
  CHECK(left.ok());
  int64_t joins = 0, repeats = 0;
  for (const auto& shard : run.shards) {
    joins += shard->joins();
    repeats += shard->repeats();
  }
  CHECK(joins > 10);
  CHECK(repeats > 0);
}

TEST_CASE("a shard that was started anew without its state ends the worker") {
  Shards run({"workers=1"});
  CuttingProxy proxy(run.shards[1]->address(), /*seed=*/1, /*cuts=*/1000, /*most_bytes=*/100'000);
  auto exchange = run.Connect({run.shards[0]->address(), proxy.address()});
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  run.shards[1]->LoseState();
  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size());
  absl::Status status;
  for (int i = 0; status.ok(); ++i) {
    status = (*exchange)->PushPull(i, TestGradient(model, 0, i), absl::MakeSpan(parameters));
  }
  CHECK(status ==
        absl::FailedPreconditionError(absl::StrCat(
            "shard 1 (", proxy.address(), "): the shard was started anew without its state")));
  (*exchange)->Leave(status).IgnoreError();
}

TEST_CASE("a shard that is gone is given up after limits.reconnect_seconds, or at once") {
  const std::string seconds = GENERATE("0.3", "0");
  Shards run({"workers=1", "limits.reconnect_seconds=" + seconds});
  auto exchange = run.Connect({run.shards[0]->address(), run.shards[1]->address()});
  REQUIRE(exchange.ok());
  const std::string name = absl::StrCat("shard 1 (", run.shards[1]->address(), "): ");
  run.shards.pop_back();
  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size());
  const absl::Status status =
      (*exchange)->PushPull(0, TestGradient(model, 0, 0), absl::MakeSpan(parameters));
  INFO(status.ToString());
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()), Catch::StartsWith(name));
  if (seconds != "0") {
    CHECK_THAT(std::string(status.message()),
               Contains("it was not there again within 0.3 s (limits.reconnect_seconds)"));
  }
  (*exchange)->Leave(status).IgnoreError();
}

TEST_CASE("an error that does not pass ends the worker when it connects again") {
  Shards run({"workers=1"});
  CuttingProxy proxy(run.shards[0]->address(), /*seed=*/2, /*cuts=*/1000, /*most_bytes=*/100'000);
  auto exchange = run.Connect({proxy.address(), run.shards[1]->address()});
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  run.shards[0]->Refuse(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the run has failed: worker 1 is lost"));
  const Model& model = run.config.model();
  std::vector<float> parameters(model.buffer_size());
  absl::Status status;
  for (int i = 0; status.ok(); ++i) {
    status = (*exchange)->PushPull(i, TestGradient(model, 0, i), absl::MakeSpan(parameters));
  }
  CHECK(status == absl::FailedPreconditionError(absl::StrCat(
                      "shard 0 (", proxy.address(), "): the run has failed: worker 1 is lost")));
  (*exchange)->Leave(status).IgnoreError();
}

}  // namespace ps
