// Programs that bring the model, in a ring: single tensors, and what else the workers agree on.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "tests/testing/thread_check.h"
#include "tests/worker/ring/grpc/test_ring.h"
#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {
namespace {

constexpr char kProgramConfig[] = R"(
  model { from_workers {
    tensor { name: "a" shape: [30, 20] layer: "a" }
    tensor { name: "b" shape: 7 layer: "b" }
    tensor { name: "c" shape: 1 layer: "c" }
    tensor { name: "mean" shape: 5 layer: "mean" role: RUNNING_STATISTIC }
    tensor { name: "frozen" shape: 600 layer: "frozen" role: BUFFER }
    tensor { name: "count" shape: 1 layer: "count" role: BUFFER }
  } }
  topology: RING
  update { policy: SYNC }
  limits { chunk_bytes: 512 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
)";
constexpr char kSgd[] = "optimizer={kind: SGD learning_rate: 0.5}";
constexpr char kMean[] = "optimizer={kind: MEAN}";
enum : int { kA, kB, kC, kStatistic, kFrozen, kCount, kTensors };
constexpr int kParameters[] = {kA, kB, kC};

constexpr auto kGradient = Contribution::kGradient;
constexpr auto kZeros = Contribution::kZeros;
constexpr auto kNothing = Contribution::kNothing;

TestRing ProgramRing(int workers, std::vector<std::string> overrides) {
  return TestRing(workers, std::move(overrides), kProgramConfig);
}

absl::Span<float> Of(const TestRing& ring, std::vector<float>& buffer, int tensor) {
  const Tensor& info = ring.config().model().tensors()[tensor];
  return absl::MakeSpan(buffer).subspan(info.offset, info.size);
}

void Fill(const TestRing& ring, std::vector<float>& buffer, int tensor, float value) {
  for (float& element : Of(ring, buffer, tensor)) element = value;
}

absl::Status Initialize(TestRing& ring, int rank, RingExchange& exchange) {
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    Fill(ring, ring.gradients(rank), tensor, rank == 0 ? 1.0F + tensor : 100);
  }
  return exchange.Initialize(absl::MakeConstSpan(ring.gradients(rank)),
                             absl::MakeSpan(ring.parameters(rank)));
}

absl::Status Begin(TestRing& ring, int rank, RingExchange& exchange) {
  return exchange.Begin(exchange.next_iteration(), ring.gradients(rank),
                        absl::MakeSpan(ring.parameters(rank)));
}

// An iteration in which each tensor has one value, contributed as `of` says.
absl::Status Iterate(TestRing& ring, int rank, RingExchange& exchange,
                     const std::vector<Contribution>& of, float value) {
  RETURN_IF_ERROR(Begin(ring, rank, exchange));
  for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
    // What does not count has a content that would be seen.
    Fill(ring, ring.gradients(rank), tensor, of[tensor] == kGradient ? value : 1000);
    RETURN_IF_ERROR(exchange.PushTensors({&tensor, 1}, of[tensor]));
  }
  return exchange.AwaitAll();
}

float ValueOf(TestRing& ring, int rank, int tensor) {
  const absl::Span<float> values = Of(ring, ring.parameters(rank), tensor);
  for (const float value : values) {
    if (std::isnan(values[0]) ? !std::isnan(value) : value != values[0]) return -12345;
  }
  return values[0];
}

void CheckOk(const std::vector<absl::Status>& outcomes) {
  for (const absl::Status& outcome : outcomes) {
    INFO(outcome.ToString());
    CHECK(outcome.ok());
  }
}

// Whether all workers end with an error, of which one at least has the text.
void CheckEnds(const std::vector<absl::Status>& outcomes, const std::string& text) {
  std::string all;
  for (const absl::Status& outcome : outcomes) {
    CHECK(!outcome.ok());
    absl::StrAppend(&all, outcome.ToString(), "\n");
  }
  INFO(all);
  CHECK(absl::StrContains(all, text));
}

TEST_CASE("a ring begins with the values of worker 0, to the bit") {
  for (const int workers : {2, 3}) {
    TestRing ring = ProgramRing(workers, {kSgd});
    CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        Fill(ring, ring.gradients(rank), tensor, rank == 0 ? -0.0F : 3);
      }
      if (rank == 0) {
        Fill(ring, ring.gradients(0), kFrozen, std::numeric_limits<float>::quiet_NaN());
        Fill(ring, ring.gradients(0), kB, 1e-40F);
      }
      return exchange.Initialize(absl::MakeConstSpan(ring.gradients(rank)),
                                 absl::MakeSpan(ring.parameters(rank)));
    }));
    for (int rank = 0; rank < workers; ++rank) {
      CHECK(std::signbit(ValueOf(ring, rank, kA)));
      CHECK(ValueOf(ring, rank, kB) == 1e-40F);
      CHECK(std::isnan(ValueOf(ring, rank, kFrozen)));
    }
  }
}

TEST_CASE("a tensor without a gradient counts as zeros, and stays as it is if nobody has one") {
  for (const int workers : {2, 3}) {
    TestRing ring = ProgramRing(workers, {kSgd});
    CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      RETURN_IF_ERROR(Initialize(ring, rank, exchange));
      ThreadCheck(exchange.assignments().all == 1);
      RETURN_IF_ERROR(Iterate(
          ring, rank, exchange,
          {kGradient, kZeros, rank == 1 ? kGradient : kZeros, kGradient, kZeros, kZeros}, -2));
      ThreadCheck(!exchange.TensorAllAbsent(kA));
      ThreadCheck(exchange.UpdatesOf(kA) == 2);
      ThreadCheck(exchange.UpdatesOf(kFrozen) == 1);
      // Then nobody has anything.
      RETURN_IF_ERROR(
          Iterate(ring, rank, exchange, {kZeros, kZeros, kZeros, kNothing, kZeros, kZeros}, 0));
      for (const int tensor : kParameters) ThreadCheck(exchange.TensorAllAbsent(tensor));
      ThreadCheck(!exchange.TensorAllAbsent(kStatistic));
      return absl::OkStatus();
    }));
    for (int rank = 0; rank < workers; ++rank) {
      CHECK(ValueOf(ring, rank, kA) == 2);                          // 1 - 0.5 * -2
      CHECK(ValueOf(ring, rank, kB) == 2);                          // as it was
      CHECK(ValueOf(ring, rank, kC) == Approx(3 + 1.0 / workers));  // zeros beside one gradient
      CHECK(ValueOf(ring, rank, kStatistic) == 4 + 2);              // the mean change, subtracted
      CHECK(ValueOf(ring, rank, kFrozen) == 5);
    }
  }
}

TEST_CASE("numbers are of parameters") {
  TestRing ring = ProgramRing(2, {kSgd});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    Hyperparameters numbers;
    numbers.learning_rate = 0;
    exchange.SetHyperparameters(std::vector<Hyperparameters>(kTensors, numbers));
    return Iterate(ring, rank, exchange,
                   {kGradient, kGradient, kGradient, kGradient, kZeros, kZeros}, 1);
  }));
  CHECK(ValueOf(ring, 0, kA) == 1);
  CHECK(ValueOf(ring, 0, kStatistic) == 4 - 1);
}

TEST_CASE("a gradient of -0.0 is one") {
  TestRing ring = ProgramRing(2, {"optimizer={kind: MOMENTUM learning_rate: 1 momentum: 0.5}"});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    const std::vector<Contribution> all(kTensors, kGradient);
    RETURN_IF_ERROR(Iterate(ring, rank, exchange, all, 1));
    return Iterate(ring, rank, exchange, all, -0.0F);
  }));
  CHECK(ValueOf(ring, 1, kA) == 1 - 1 - 0.5F);  // the velocity goes on
}

TEST_CASE("means reach all workers whatever they are, and say what nobody has") {
  for (const int workers : {2, 4}) {
    TestRing ring = ProgramRing(workers, {kMean});
    CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      RETURN_IF_ERROR(Initialize(ring, rank, exchange));
      const float value =
          rank == 1 ? std::numeric_limits<float>::infinity() : static_cast<float>(rank);
      RETURN_IF_ERROR(Iterate(ring, rank, exchange,
                              {kGradient, kZeros, kZeros, kGradient, kZeros, kZeros}, value));
      ThreadCheck(std::isinf(ValueOf(ring, rank, kA)));
      ThreadCheck(!exchange.TensorAllAbsent(kA));
      ThreadCheck(exchange.TensorAllAbsent(kB));
      ThreadCheck(exchange.TensorAllAbsent(kC));
      return Iterate(ring, rank, exchange,
                     {kGradient, kGradient, kZeros, kGradient, kZeros, kZeros}, 1.0F + rank);
    }));
    for (int rank = 0; rank < workers; ++rank) {
      CHECK(ValueOf(ring, rank, kA) == 0.5F + 0.5F * workers);
      CHECK(ValueOf(ring, rank, kB) == 0.5F + 0.5F * workers);
    }
  }
}

TEST_CASE("buffers are worker 0's, and travel when they have changed") {
  TestRing ring = ProgramRing(3, {kSgd});
  uint64_t bytes = 0;
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    const std::vector<Contribution> none = {kGradient, kGradient, kGradient,
                                            kGradient, kZeros,    kZeros};
    const uint64_t before = exchange.traffic().bytes_out;
    RETURN_IF_ERROR(Iterate(ring, rank, exchange, none, 0));
    if (rank == 0) bytes = exchange.traffic().bytes_out - before;
    std::vector<Contribution> count = none;
    // Others may say what they like.
    count[kCount] = rank == 1 ? kZeros : kGradient;
    return Iterate(ring, rank, exchange, count, 9.0F + rank);
  }));
  CHECK(bytes < 4 * 2 * 700);  // without the 600 elements of `frozen`
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(ValueOf(ring, rank, kCount) == 9);
    CHECK(ValueOf(ring, rank, kFrozen) == 5);
  }
}

TEST_CASE("what has come of a tensor counts while others are on their way") {
  TestRing ring = ProgramRing(3, {kSgd});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    RETURN_IF_ERROR(Begin(ring, rank, exchange));
    const auto push = [&](int tensor, Contribution contribution) {
      Fill(ring, ring.gradients(rank), tensor, 9);
      return exchange.PushTensors({&tensor, 1}, contribution);
    };
    RETURN_IF_ERROR(push(kCount, kGradient));
    RETURN_IF_ERROR(push(kFrozen, kZeros));
    RETURN_IF_ERROR(exchange.AwaitTensor(kCount));
    ThreadCheck(exchange.UpdatesOf(kCount) == 2);
    ThreadCheck(exchange.UpdatesOf(kA) == 1);
    for (const int tensor : {kStatistic, kC, kB, kA}) RETURN_IF_ERROR(push(tensor, kGradient));
    RETURN_IF_ERROR(exchange.AwaitAll());
    for (const int tensor : {kCount, kA, kB, kC}) ThreadCheck(exchange.UpdatesOf(tensor) == 2);
    return absl::OkStatus();
  }));
  for (int rank = 0; rank < 3; ++rank) CHECK(ValueOf(ring, rank, kCount) == 9);
}

TEST_CASE("a tensor that is named twice is refused before anything is pushed") {
  TestRing ring = ProgramRing(2, {kSgd});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    RETURN_IF_ERROR(Begin(ring, rank, exchange));
    const std::vector<int> twice = {kB, kA, kB};
    const absl::Status refused = exchange.PushTensors(twice, kZeros);
    ThreadCheck(absl::IsFailedPrecondition(refused));
    ThreadCheck(!exchange.TensorPushed(kA) && !exchange.TensorPushed(kB));
    for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
      Fill(ring, ring.gradients(rank), tensor, 4);
      RETURN_IF_ERROR(exchange.PushTensors({&tensor, 1}, kGradient));
    }
    return exchange.AwaitAll();
  }));
  for (int rank = 0; rank < 2; ++rank) CHECK(ValueOf(ring, rank, kB) == 0);  // 2 - 0.5 * 4
}

TEST_CASE("a mean of too many values is refused, and the ring goes on") {
  TestRing ring = ProgramRing(2, {kSgd});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    const auto refused = exchange.Mean("here", std::vector<double>(4097)).status();
    ThreadCheck(refused ==
                absl::InvalidArgumentError("the mean is asked of 4097 values; allowed: at most "
                                           "4096"));
    return exchange.Mean("here", std::vector<double>(4096)).status();
  }));
}

TEST_CASE("a worker that has given up is left out of the mean") {
  TestRing ring = ProgramRing(3, {kSgd});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    const std::vector<Contribution> of = {
        kGradient, rank == 1 ? kNothing : kGradient, kGradient, kGradient, kZeros, kZeros};
    return Iterate(ring, rank, exchange, of, rank == 1 ? 100.0F : 2);
  }));
  CHECK(ValueOf(ring, 1, kB) == 1);
  // What the tensor beside it has in the same segment has not left either.
  const absl::Span<float> beside = Of(ring, ring.parameters(1), kA);
  const RingPlan& plan = ring.config().ring_plan();
  const std::vector<Tensor>& tensors = ring.config().model().tensors();
  std::set<bool> shared;
  for (const RingSegment& segment : plan.segments()) {
    for (const RingRun& run : plan.runs(segment)) {
      if (run.tensor != kA) continue;
      const bool is_shared = plan.runs(segment).back().tensor != kA;
      shared.insert(is_shared);
      const float mean = is_shared ? (2.0F + 2.0F) / 2 : (2.0F + 100.0F + 2.0F) / 3;
      for (int64_t i = run.begin; i < run.end; ++i) {
        CHECK(beside[i - tensors[kA].offset] == Approx(1 - 0.5 * mean));
      }
    }
  }
  CHECK(shared.size() == 2);
}

TEST_CASE("workers that have all given up, or ended, say whether one has given up") {
  const std::string rule = GENERATE(as<std::string>(), kSgd, kMean);
  for (const int workers : {2, 3}) {
    TestRing ring = ProgramRing(workers, {rule});
    CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      RETURN_IF_ERROR(Initialize(ring, rank, exchange));
      const std::vector<Contribution> none(kTensors, kNothing);
      const std::vector<Contribution> zeros(kTensors, kZeros);
      for (int gives_up = 0; gives_up < workers; ++gives_up) {
        RETURN_IF_ERROR(Iterate(ring, rank, exchange, rank == gives_up ? none : zeros, 0));
        for (const int tensor : kParameters) ThreadCheck(!exchange.TensorAllAbsent(tensor));
      }
      RETURN_IF_ERROR(Iterate(ring, rank, exchange, zeros, 0));
      for (const int tensor : kParameters) {
        ThreadCheck(exchange.TensorAllAbsent(tensor));
        ThreadCheck(exchange.UpdatesOf(tensor) == 1);
      }
      return absl::OkStatus();
    }));
    for (int rank = 0; rank < workers; ++rank) {
      if (rule == kSgd) CHECK(ValueOf(ring, rank, kB) == 2);
    }
  }
}

TEST_CASE("a tensor of which a part has no mean counts as one without a gradient") {
  TestRing ring = ProgramRing(3, {kMean});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    std::vector<Contribution> of(kTensors, kGradient);
    RETURN_IF_ERROR(Iterate(ring, rank, exchange, of, 2));
    ThreadCheck(exchange.UpdatesOf(kA) == 2);
    // All have given up behind `a`, which shares a segment with `b`.
    of[kB] = kNothing;
    RETURN_IF_ERROR(Iterate(ring, rank, exchange, of, 4));
    ThreadCheck(exchange.UpdatesOf(kA) == 2);
    ThreadCheck(exchange.UpdatesOf(kB) == 2);
    of[kB] = kGradient;
    RETURN_IF_ERROR(Iterate(ring, rank, exchange, of, 4));
    ThreadCheck(exchange.UpdatesOf(kA) == 3);
    ThreadCheck(ValueOf(ring, rank, kA) == 4);
    return absl::OkStatus();
  }));
}

TEST_CASE("a mean is added in the order of ranks, and all have the same states") {
  TestRing ring = ProgramRing(3, {kSgd});
  CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    for (int i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const std::vector<double> mean,
                       exchange.Mean("here", {rank == 0 ? 1e17 : 1.0, rank + 1.0}));
      ThreadCheck(mean[0] == (1e17 + 1.0 + 1.0) / 3);
      ThreadCheck(mean[1] == 2);
      RETURN_IF_ERROR(exchange.KeepState({{"x", "1"}, {"y", "2"}}));
      RETURN_IF_ERROR(
          Iterate(ring, rank, exchange, std::vector<Contribution>(kTensors, kGradient), 1));
    }
    return absl::OkStatus();
  }));
}

TEST_CASE("workers may leave as soon as they have a mean") {
  for (int run = 0; run < 30; ++run) {
    TestRing ring = ProgramRing(3, {kSgd});
    CheckOk(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      RETURN_IF_ERROR(Initialize(ring, rank, exchange));
      return exchange.Mean("here", {1.0 * rank}).status();
    }));
  }
}

TEST_CASE("workers that do not do the same end the run") {
  TestRing ring = ProgramRing(3, {kSgd});
  const auto run = [&](const std::function<absl::Status(int, RingExchange&)>& work) {
    return ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
      RETURN_IF_ERROR(Initialize(ring, rank, exchange));
      return work(rank, exchange);
    });
  };
  const std::vector<Contribution> all(kTensors, kGradient);
  CheckEnds(run([&](int rank, RingExchange& exchange) {
              Hyperparameters numbers;
              numbers.learning_rate = rank == 1 ? 0.25F : 0.5F;
              exchange.SetHyperparameters(std::vector<Hyperparameters>(kTensors, numbers));
              return Iterate(ring, rank, exchange, all, 1);
            }),
            "the learning rate 0.25");
  CheckEnds(run([&](int rank, RingExchange& exchange) {
              return rank == 1 ? exchange.Initialize(ring.gradients(rank),
                                                     absl::MakeSpan(ring.parameters(rank)))
                               : Iterate(ring, rank, exchange, all, 1);
            }),
            "assigns values");
  CheckEnds(run([&](int rank, RingExchange& exchange) {
              return exchange.Mean(rank == 1 ? "a.py:1" : "b.py:2", {1}).status();
            }),
            "worker 1 asks for a mean of 1 values at a.py:1, and worker 0 asks for a mean of 1 "
            "values at b.py:2");
  const std::vector<absl::Status> differing = run([&](int rank, RingExchange& exchange) {
    return exchange.KeepState({{"x", rank == 2 ? "1" : "2"}});
  });
  CheckEnds(differing, "\"x\" is not the same in worker 2 and in worker 0");
  for (const absl::Status& outcome : differing) CHECK(DifferingStateOf(outcome) == "x");
  CheckEnds(run([&](int rank, RingExchange& exchange) {
              return rank == 1 ? exchange.Mean("a.py:1", {1}).status()
                               : Iterate(ring, rank, exchange, all, 1);
            }),
            "worker 1 is in a mean() or barrier()");
}

TEST_CASE("a worker that has finished is not waited for") {
  TestRing ring = ProgramRing(3, {kSgd});
  const std::vector<Contribution> all(kTensors, kGradient);
  const auto check = [&](const std::string& text,
                         const std::function<absl::Status(int, RingExchange&)>& goes_on) {
    const std::vector<absl::Status> outcomes =
        ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
          RETURN_IF_ERROR(Initialize(ring, rank, exchange));
          RETURN_IF_ERROR(Iterate(ring, rank, exchange, all, 1));
          return rank == 0 ? absl::OkStatus() : goes_on(rank, exchange);
        });
    CHECK(outcomes[0].ok());
    CheckEnds({outcomes[1], outcomes[2]}, text);
  };
  check("has finished after 1 iterations, and worker 1 goes on",
        [&](int rank, RingExchange& exchange) { return Iterate(ring, rank, exchange, all, 1); });
  check("has finished after 1 iterations, and worker 1 goes on", [](int, RingExchange& exchange) {
    return exchange.KeepState({{"x", "1"}});
  });
  check("has finished, and worker 1 waits for it",
        [](int, RingExchange& exchange) { return exchange.Mean("here", {1}).status(); });
}

TEST_CASE("a worker that does not begin an iteration as the others do ends the run") {
  TestRing ring = ProgramRing(3, {kSgd, "limits.exchange_seconds=5"});
  CheckEnds(ring.RunWorkers([&](int rank, RingExchange& exchange) -> absl::Status {
    RETURN_IF_ERROR(Initialize(ring, rank, exchange));
    if (rank != 1) return exchange.KeepState({{"x", "1"}});
    absl::Status heard;
    while ((heard = exchange.AwaitAll()).ok()) absl::SleepFor(absl::Milliseconds(20));
    return heard;
  }),
            ") has not begun it for 5s (limits.exchange_seconds)");
}

TEST_CASE("workers that bring other things say what differs") {
  TestRing ring = ProgramRing(2, {});
  Declaration declaration;
  *declaration.mutable_model() = ring.config().proto().model().from_workers();
  declaration.mutable_optimizer()->set_kind(OptimizerConfig::MOMENTUM);
  declaration.mutable_optimizer()->set_learning_rate(0.5);
  std::vector<PlannedConfig> configs;
  for (const float momentum : {0.5F, 0.75F}) {
    declaration.mutable_optimizer()->set_momentum(momentum);
    absl::StatusOr<PlannedConfig> config = ring.config().Declared(declaration);
    REQUIRE(config.ok());
    configs.push_back(*std::move(config));
  }
  std::vector<absl::Status> outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back(
        [&, rank] { outcomes[rank] = ring.Connect(rank, &configs[rank]).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  CheckEnds(outcomes, "brings something else than worker");
  CheckEnds(outcomes, "momentum: 0.75");
}

}  // namespace
}  // namespace evenshard
