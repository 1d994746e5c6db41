// Runs with model.from_workers: what worker 0 brings becomes everybody's, rates and absences go
// with the pushes.

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/testing/cluster.h"
#include "tests/testing/raw_worker.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// A model of tensors only, as workers declare it. `more` are further fields of the config.
std::string Text(const std::string& more) {
  return absl::StrCat(R"(
    model { from_workers {
      tensor { name: "a.weight" shape: [30, 17] }
      tensor { name: "a.bias" shape: [30] }
      tensor { name: "norm.mean" shape: [30] role: RUNNING_STATISTIC }
      tensor { name: "scale" }
    } }
    shard { address: "127.0.0.1:0" }
    shard { address: "127.0.0.1:0" }
    partition { scheme: MEMORY_BASED }
    limits { chunk_bytes: 256 startup_seconds: 20 exchange_seconds: 60 }
  )",
                      more);
}

std::vector<float> InitialOf(const Model& model, int rank) { return TestGradient(model, rank, 77); }

// One worker's part: begins, and then pushes gradients for `iterations`.
absl::Status Train(const PlannedConfig& config, int rank, Exchange& exchange, int iterations,
                   std::vector<float>* parameters) {
  parameters->resize(config.model().buffer_size());
  const std::vector<float> initial = InitialOf(config.model(), rank);
  RETURN_IF_ERROR(exchange.Initialize(initial, absl::MakeSpan(*parameters)));
  for (int i = 0; i < iterations; ++i) {
    const std::vector<float> gradient = TestGradient(config.model(), rank, i);
    RETURN_IF_ERROR(
        exchange.PushPull(exchange.next_iteration(), gradient, absl::MakeSpan(*parameters)));
  }
  return absl::OkStatus();
}

// The elements of tensors; gaps are 0.
void RequireClose(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(i);
    REQUIRE(a[i] == Approx(b[i]).margin(tolerance));
  }
}

TEST_CASE("all workers begin with the parameters of worker 0, bit by bit") {
  const std::string encoding = GENERATE(
      "", "exchange { gradient_encoding: BFLOAT16 }",
      "exchange { gradient_encoding: INT4 error_feedback: true gradient_rounding: STOCHASTIC }");
  const std::string policy = GENERATE("SYNC", "SYNC deterministic: true", "ASYNC");
  CAPTURE(encoding, policy);
  const PlannedConfig config =
      MustParse(Text(absl::StrCat("workers: 3 update { policy: ", policy, " }", encoding)));
  TestCluster cluster(config);
  std::vector<std::vector<float>> parameters(3);
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    return Train(config, rank, exchange, 0, &parameters[rank]);
  }));
  const std::vector<float> initial = InitialOf(config.model(), 0);
  for (int rank = 0; rank < 3; ++rank) CHECK(parameters[rank] == initial);
  CHECK(cluster.Parameters() == initial);
}

TEST_CASE("updates follow the optimizer from the parameters of worker 0 on") {
  const PlannedConfig config = MustParse(
      Text("workers: 2 update { policy: SYNC } optimizer { kind: ADAM learning_rate: 0.125 }"));
  TestCluster cluster(config);
  std::vector<std::vector<float>> parameters(2);
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    return Train(config, rank, exchange, 1, &parameters[rank]);
  }));
  CHECK(parameters[0] == parameters[1]);
  std::vector<float> expected = InitialOf(config.model(), 0);
  const std::vector<float> first = TestGradient(config.model(), 0, 0);
  const std::vector<float> second = TestGradient(config.model(), 1, 0);
  for (const Tensor& tensor : config.model().tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      const float mean = (first[i] + second[i]) / 2;
      // Adam's first step is the learning rate in the gradient's direction.
      const bool is_statistic = tensor.role == TensorRole::kRunningStatistic;
      expected[i] -= is_statistic ? mean : mean > 0 ? 0.125f : -0.125f;
    }
  }
  RequireClose(parameters[0], expected, 1e-4f);
}

TEST_CASE("learning rates go with the pushes, tensor by tensor") {
  const std::string schedule = GENERATE("SEQUENTIAL", "FULL");
  const std::string policy = GENERATE("SYNC", "ASYNC");
  CAPTURE(schedule, policy);
  const PlannedConfig config = MustParse(Text(absl::StrCat(
      "workers: 1 update { policy: ", policy, " } exchange { schedule: ", schedule,
      " } optimizer { learning_rate: 9 schedule { kind: STEP step_iterations: 1 } }")));
  TestCluster cluster(config);
  std::vector<float> parameters;
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Train(config, rank, exchange, 0, &parameters));
    exchange.SetHyperparameters({{.learning_rate = 0.5f},
                                 {.learning_rate = 0.0f},
                                 {.learning_rate = 7.0f},
                                 {.learning_rate = 0.25f}});
    const std::vector<float> gradient = TestGradient(config.model(), rank, 0);
    return exchange.PushPull(1, gradient, absl::MakeSpan(parameters));
  }));
  std::vector<float> expected = InitialOf(config.model(), 0);
  const std::vector<float> gradient = TestGradient(config.model(), 0, 0);
  const std::vector<float> rates = {0.5f, 0.0f, 1.0f, 0.25f};  // a running statistic has none
  for (size_t t = 0; t < rates.size(); ++t) {
    const Tensor& tensor = config.model().tensors()[t];
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      expected[i] -= rates[t] * gradient[i];
    }
  }
  CHECK(parameters == expected);
}

TEST_CASE("workers that disagree on a learning rate are named") {
  const PlannedConfig config = MustParse(Text("workers: 2 update { policy: SYNC }"));
  TestCluster cluster(config);
  // In use until the workers have left.
  std::array<std::vector<float>, 2> gradients;
  std::array<std::vector<float>, 2> parameters;
  const std::vector<absl::Status> outcomes =
      cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
        RETURN_IF_ERROR(Train(config, rank, exchange, 0, &parameters[rank]));
        exchange.SetHyperparameters(
            std::vector<Hyperparameters>(4, {.learning_rate = rank == 0 ? 0.1f : 0.2f}));
        gradients[rank] = TestGradient(config.model(), rank, 0);
        return exchange.PushPull(1, gradients[rank], absl::MakeSpan(parameters[rank]));
      });
  for (const absl::Status& outcome : outcomes) {
    CHECK_THAT(std::string(outcome.message()), Contains("disagree at iteration 0"));
    CHECK_THAT(std::string(outcome.message()), Contains("the learning rate 0.1"));
    CHECK_THAT(std::string(outcome.message()), Contains("the learning rate 0.2"));
  }
}

TEST_CASE("a tensor without a gradient at a worker counts as zeros, and at all as no update") {
  const std::string schedule = GENERATE("SEQUENTIAL", "BACKWARD");
  CAPTURE(schedule);
  const PlannedConfig config = MustParse(
      Text(absl::StrCat("workers: 2 update { policy: SYNC } optimizer { learning_rate: 1 } ",
                        "exchange { schedule: ", schedule, " }")));
  TestCluster cluster(config);
  std::vector<std::vector<float>> parameters(2);
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Train(config, rank, exchange, 0, &parameters[rank]));
    const std::vector<float> gradient = TestGradient(config.model(), rank, 0);
    // Worker 1 has no gradient of a.bias, and nobody has one of scale.
    RETURN_IF_ERROR(exchange.Begin(1, gradient, absl::MakeSpan(parameters[rank])));
    for (const int tensor : {3, 2, 1, 0}) {
      const bool has_gradient = tensor != 3 && (tensor != 1 || rank == 0);
      RETURN_IF_ERROR(exchange.PushTensors(
          {tensor}, has_gradient ? Contribution::kGradient : Contribution::kZeros));
    }
    for (const int tensor : {0, 1, 2, 3}) RETURN_IF_ERROR(exchange.AwaitTensor(tensor));
    return exchange.is_begun() ? absl::InternalError("something is still to come")
                               : absl::OkStatus();
  }));
  CHECK(parameters[0] == parameters[1]);
  const std::vector<float> initial = InitialOf(config.model(), 0);
  const std::vector<float> first = TestGradient(config.model(), 0, 0);
  const std::vector<float> second = TestGradient(config.model(), 1, 0);
  std::vector<float> expected = initial;
  for (size_t t = 0; t < 3; ++t) {
    const Tensor& tensor = config.model().tensors()[t];
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      expected[i] -= (first[i] + (t == 1 ? 0 : second[i])) / 2;
    }
  }
  RequireClose(parameters[0], expected, 1e-5f);
}

TEST_CASE("a buffer has the value that worker 0 pushed last, to the bit") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  const std::string shared = GENERATE("true", "false");
  CAPTURE(policy, shared);
  const PlannedConfig config = MustParse(absl::StrCat(R"(
    model { from_workers {
      tensor { name: "weight" shape: [30, 17] }
      tensor { name: "mask" shape: [200] role: BUFFER }
    } }
    shard { address: "127.0.0.1:0" }
    shard { address: "127.0.0.1:0" }
    partition { scheme: MEMORY_BASED }
    limits { chunk_bytes: 256 startup_seconds: 20 exchange_seconds: 60 }
    workers: 2
    optimizer { kind: ADAM learning_rate: 1 }
    update { policy: )",
                                                      policy, R"( }
    exchange { schedule: SEQUENTIAL shared_memory: )",
                                                      shared, shared == "true" ? " }" : R"(
               gradient_encoding: BFLOAT16 parameter_encoding: FLOAT16 })"));
  const Tensor& mask = config.model().tensors()[1];
  // None of these is a number that a gradient may be, or that 16 bits have.
  const std::vector<float> values = {-std::numeric_limits<float>::infinity(), 1.0f + 0x1p-23f,
                                     16'777'215.0f, -0.0f};
  TestCluster cluster(config);
  std::vector<std::vector<float>> parameters(2);
  std::vector<uint64_t> updates(2);
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Train(config, rank, exchange, 0, &parameters[rank]));
    const auto iterate = [&](bool pushes_mask) -> absl::Status {
      std::vector<float> gradient = TestGradient(config.model(), rank, 0);
      for (int64_t i = 0; i < mask.size; ++i) {
        gradient[mask.offset + i] = values[i % values.size()];
      }
      RETURN_IF_ERROR(
          exchange.Begin(exchange.next_iteration(), gradient, absl::MakeSpan(parameters[rank])));
      RETURN_IF_ERROR(exchange.PushTensors({0}, Contribution::kGradient));
      RETURN_IF_ERROR(
          exchange.PushTensors({1}, pushes_mask ? Contribution::kGradient : Contribution::kZeros));
      return exchange.AwaitAll();
    };
    RETURN_IF_ERROR(iterate(rank == 0));
    // Under ASYNC the other worker may not have seen the value yet, or only some of its chunks.
    const auto has_all = [&] {
      for (int64_t i = 0; i < mask.size; ++i) {
        if (parameters[rank][mask.offset + i] != values[i % values.size()]) return false;
      }
      return true;
    };
    for (int i = 0; i < 1000 && !has_all(); ++i) RETURN_IF_ERROR(iterate(false));
    updates[rank] = exchange.round().UpdatesOf(1);
    RETURN_IF_ERROR(iterate(false));
    return exchange.round().UpdatesOf(1) == updates[rank]
               ? absl::OkStatus()
               : absl::InternalError("was updated without a push");
  }));
  CHECK(updates[0] == updates[1]);
  for (int rank = 0; rank < 2; ++rank) {
    for (int64_t i = 0; i < mask.size; ++i) {
      CAPTURE(rank, i);
      CHECK(std::bit_cast<uint32_t>(parameters[rank][mask.offset + i]) ==
            std::bit_cast<uint32_t>(values[i % values.size()]));
    }
  }
}

TEST_CASE("only worker 0 may push a buffer") {
  const PlannedConfig config = MustParse(R"(
    model { from_workers {
      tensor { name: "weight" shape: [30, 17] }
      tensor { name: "mask" shape: [2] role: BUFFER }
    } }
    shard { address: "127.0.0.1:0" }
    partition { scheme: MEMORY_BASED }
    workers: 2
    update { policy: SYNC }
    limits { startup_seconds: 20 exchange_seconds: 60 }
  )");
  TestCluster cluster(config);
  // In use until the workers have left.
  std::array<std::vector<float>, 2> gradients;
  std::array<std::vector<float>, 2> parameters;
  const std::vector<absl::Status> outcomes =
      cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
        RETURN_IF_ERROR(Train(config, rank, exchange, 0, &parameters[rank]));
        gradients[rank] = TestGradient(config.model(), rank, 0);
        return exchange.PushPull(exchange.next_iteration(), gradients[rank],
                                 absl::MakeSpan(parameters[rank]));
      });
  CHECK_THAT(std::string(outcomes[1].message()),
             Contains("of the buffer mask; only worker 0 gives it, and others set `absent`"));
}

TEST_CASE("only worker 0 gives the initial parameters") {
  const PlannedConfig config = MustParse(Text("workers: 2 update { policy: ASYNC }"));
  TestCluster cluster(config);
  // In use until the exchange ends.
  const std::vector<float> gradient = TestGradient(config.model(), 1, 0);
  std::vector<float> parameters(config.model().buffer_size());
  const auto exchange = cluster.Connect(1);
  REQUIRE(exchange.ok());
  const int64_t iteration = GENERATE(0, 1);
  const absl::Status refused =
      (*exchange)->PushPull(iteration, gradient, absl::MakeSpan(parameters));
  CHECK_THAT(std::string(refused.message()),
             Contains(iteration == 0 ? "exchange 0, which assigns the initial parameters"
                                     : "worker 0 has yet to push the initial parameters"));
}

void Leave(TestCluster& cluster, uint64_t incarnation) {
  LeaveRequest request;
  request.set_worker(0);
  request.set_incarnation(incarnation);
  REQUIRE(cluster.server(0).shard().Leave(request).ok());
}

TEST_CASE("a worker 0 that was lost while it gave the initial parameters starts over") {
  const PlannedConfig config = MustParse(Text("workers: 1 update { policy: ASYNC }"));
  TestCluster cluster(config);
  const Chunk& first = config.plan().chunks()[0];
  REQUIRE(first.shard == 0);
  {
    RawWorker lost(cluster, 0);
    std::string* const data = lost.chunk().mutable_data();
    data->assign(first.size * sizeof(float), '\0');
    lost.chunk().set_assigned(0);
    lost.Send();
    ParameterChunk reply;
    REQUIRE(lost.Receive(&reply));
    REQUIRE(reply.version() == 1);
    Leave(cluster, lost.chunk().incarnation());
  }
  Shard& shard = cluster.server(0).shard();
  const absl::StatusOr<JoinResponse> joined = shard.Join(cluster.RequestToJoin(0, 99), "test");
  REQUIRE(joined.ok());
  CHECK(joined->start_iteration() == 0);
  Leave(cluster, 99);
  std::vector<float> parameters;
  RequireAllOk(cluster.RunWorkers(
      [&](int rank, Exchange& exchange) { return Train(config, rank, exchange, 0, &parameters); }));
  // What was given first stays.
  std::vector<float> expected = InitialOf(config.model(), 0);
  std::fill_n(expected.begin() + first.model_offset, first.size, 0.0f);
  CHECK(parameters == expected);
  CHECK(cluster.Parameters() == expected);
}

TEST_CASE("a worker with another model is told what differs") {
  const PlannedConfig config = MustParse(Text("workers: 2 update { policy: SYNC }"));
  TestCluster cluster(config);
  std::string other = Text("workers: 2 update { policy: SYNC }");
  other.replace(other.find("17"), 2, "18");
  const PlannedConfig theirs = MustParse(other);
  const absl::Status refused =
      Exchange::Connect({.config = &theirs, .rank = 1, .addresses = cluster.addresses()}).status();
  CHECK_THAT(std::string(refused.message()),
             Contains("tensor 0 is a.weight [30, 17], and a.weight [30, 18] there"));
}

}  // namespace
}  // namespace evenshard
