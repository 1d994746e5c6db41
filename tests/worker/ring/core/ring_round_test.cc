#include "worker/ring/core/ring_round.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/wire/encoding.h"
#include "tests/worker/ring/core/ring_of_rounds.h"

namespace evenshard {
namespace {

constexpr char kMomentum[] = "optimizer={kind: MOMENTUM learning_rate: 0.05 weight_decay: 0.01}";

TEST_CASE("all workers come to the optimizer's step on the sum in the order of the ring") {
  for (const std::string& model :
       {std::string(kSmallRingModel), std::string("builtin: \"mnist_mlp\""),
        std::string("builtin: \"alexnet\" shrink: 64"),
        std::string("builtin: \"vgg16\" shrink: 64"),
        std::string("builtin: \"resnet152\" shrink: 64")}) {
    const bool is_small = model == kSmallRingModel;
    const int iterations = is_small ? 3 : 1;
    for (const int workers : {2, 3, 5, 8}) {
      INFO(model << ", " << workers << " workers");
      RingOfRounds ring(RingConfigOf(
          workers, model,
          {kMomentum, is_small ? "limits.chunk_bytes=256" : "limits.chunk_bytes=4096",
           is_small ? "ring.bucket_bytes=4096" : "ring.bucket_bytes=262144",
           is_small ? "ring.first_bucket_bytes=1024" : "ring.first_bucket_bytes=16384"}));
      RingReference reference(&ring.config(), &ring.plan());
      const std::vector<float> all(workers, 1);
      for (int iteration = 0; iteration < iterations; ++iteration) {
        RunIteration(ring, iteration, all, 100 * workers + iteration);
        reference.Update(iteration, all);
        for (int rank = 0; rank < workers; ++rank) {
          RequireSame(ring.worker(rank).parameters, reference.parameters());
        }
      }
      CHECK(ring.worker(0).round->iteration() == static_cast<uint64_t>(iterations));
    }
  }
}

TEST_CASE("each rule has its state at the worker whose part it is") {
  for (const char* optimizer :
       {"optimizer={kind: SGD}", "optimizer={kind: NESTEROV}", "optimizer={kind: ADAM}",
        "optimizer={kind: ADAMW_AMSGRAD weight_decay: 0.1}", "optimizer={kind: LION}",
        "optimizer={kind: RMSPROP_MOMENTUM rule { tensors: '*/bias' learning_rate: 0.5 }}",
        "optimizer={kind: ADAGRAD schedule { kind: STEP step_iterations: 1 }}"}) {
    INFO(optimizer);
    RingOfRounds ring(RingConfigOf(3, kSmallRingModel, {optimizer}));
    RingReference reference(&ring.config(), &ring.plan());
    for (int iteration = 0; iteration < 3; ++iteration) {
      RunIteration(ring, iteration, {1, 1, 1}, iteration);
      reference.Update(iteration, {1, 1, 1});
    }
    for (int rank = 0; rank < 3; ++rank) {
      RequireSame(ring.worker(rank).parameters, reference.parameters());
    }
  }
}

TEST_CASE("workers count by their weights, and one that skips does not count") {
  const std::vector<std::vector<float>> all_weights = {
      {1, 0, 1, 1}, {0, 0, 0, 1}, {1, 0, 0, 0}, {0, 0, 0, 0}, {0.5f, 1, 0, 0.25f}, {1, 1, 1, 1}};
  RingOfRounds ring(RingConfigOf(4, kSmallRingModel, {"optimizer={kind: ADAM}"}));
  RingReference reference(&ring.config(), &ring.plan());
  for (size_t iteration = 0; iteration < all_weights.size(); ++iteration) {
    INFO("iteration " << iteration);
    RunIteration(ring, static_cast<int>(iteration), all_weights[iteration], 7);
    reference.Update(static_cast<int>(iteration), all_weights[iteration]);
    for (int rank = 0; rank < 4; ++rank) {
      RequireSame(ring.worker(rank).parameters, reference.parameters());
    }
  }
}

// Delivers what can travel.
void DeliverSome(RingOfRounds& ring) {
  for (int i = 0; i < 2000; ++i) {
    ring.Deliver(i % ring.workers(), static_cast<RingWay>(i / 3 % 2), i / 6 % 2);
  }
}

TEST_CASE("the order in which a worker's gradients come changes nothing") {
  for (int drawn = 0; drawn < 20; ++drawn) {
    RingOfRounds ring(RingConfigOf(3, kSmallRingModel, {kMomentum, "ring.bucket_bytes=65536"}));
    RingReference reference(&ring.config(), &ring.plan());
    const CounterRandom random(drawn, "layers");
    for (int iteration = 0; iteration < 3; ++iteration) {
      for (int rank = 0; rank < 3; ++rank) {
        REQUIRE(ring.Begin(rank, iteration).ok());
        std::vector<int> layers = {0, 2, 4};
        for (size_t i = 0; i < layers.size(); ++i) {
          std::swap(layers[i], layers[random.Below(100 * iteration + 10 * rank + i, 3)]);
        }
        for (const int layer : layers) {
          REQUIRE(ring.worker(rank).round->Push(layer).ok());
          DeliverSome(ring);
        }
      }
      RequireOk(ring.DeliverAll(drawn));
      reference.Update(iteration, {1, 1, 1});
      for (int rank = 0; rank < 3; ++rank) {
        RequireSame(ring.worker(rank).parameters, reference.parameters());
      }
    }
  }
}

TEST_CASE("segments leave, and come back, as soon as the gradients of their own layers exist") {
  RingOfRounds ring(RingConfigOf(
      3, kSmallRingModel,
      {"limits.chunk_bytes=320", "ring.bucket_bytes=65536", "ring.first_bucket_bytes=65536"}));
  REQUIRE(ring.plan().buckets().size() == 1);
  for (int rank = 0; rank < 3; ++rank) REQUIRE(ring.Begin(rank, 0).ok());
  const auto sent = [&] {
    uint64_t pushes = 0;
    for (int rank = 0; rank < 3; ++rank) pushes += ring.worker(rank).round->traffic().pushes;
    return pushes;
  };
  // A segment passes two links each way.
  const auto all_of = [&](auto is_pushed) {
    uint64_t segments = 0;
    for (const RingSegment& segment : ring.plan().segments()) {
      segments += is_pushed(segment.first_layer) && is_pushed(segment.last_layer);
    }
    return 4 * segments;
  };
  // The backward pass of a plain model would come to the front layer last.
  for (int rank = 0; rank < 3; ++rank) REQUIRE(ring.worker(rank).round->Push(0).ok());
  DeliverSome(ring);
  CHECK(sent() == all_of([](int layer) { return layer == 0; }));
  const RingSegment& shared = ring.plan().segments()[ring.plan().segments_of_layer(0).back()];
  REQUIRE(shared.last_layer == 2);
  CHECK_FALSE(ring.worker(0).round->HasLayer(0));
  CHECK(ring.worker(0).round->AwaitLayer(0).message() ==
        "layer 2 has not been pushed, and is waited for");
  for (int rank = 0; rank < 3; ++rank) REQUIRE(ring.worker(rank).round->Push(4).ok());
  DeliverSome(ring);
  CHECK(sent() == all_of([](int layer) { return layer != 2; }));
  CHECK(sent() < 4 * ring.plan().segments().size());
  for (int rank = 0; rank < 3; ++rank) REQUIRE(ring.worker(rank).round->Push(2).ok());
  DeliverSome(ring);
  for (const int layer : {0, 2, 4}) CHECK(ring.worker(0).round->HasLayer(layer));
  RequireOk(ring.DeliverAll(1));
  CHECK(sent() == 4 * ring.plan().segments().size());
}

TEST_CASE("a worker that is late holds what comes, and the others may be an iteration ahead") {
  RingOfRounds ring(RingConfigOf(3, kSmallRingModel, {kMomentum}));
  RingReference reference(&ring.config(), &ring.plan());
  // Workers 0 and 1 push, and everything travels that can before worker 2 begins.
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (const int rank : {0, 1}) {
      REQUIRE(ring.Begin(rank, iteration).ok());
      REQUIRE(ring.PushAll(rank).ok());
      DeliverSome(ring);
    }
    REQUIRE(ring.Begin(2, iteration).ok());
    DeliverSome(ring);
    REQUIRE(ring.PushAll(2).ok());
    RequireOk(ring.DeliverAll(iteration));
    reference.Update(iteration, {1, 1, 1});
    for (int rank = 0; rank < 3; ++rank) {
      RequireSame(ring.worker(rank).parameters, reference.parameters());
    }
  }
}

TEST_CASE("a worker's next sums may come before it has ended its iteration") {
  RingOfRounds ring(RingConfigOf(2, kSmallRingModel));
  for (const int rank : {0, 1}) {
    REQUIRE(ring.Begin(rank, 0).ok());
    REQUIRE(ring.PushAll(rank).ok());
  }
  // Worker 1 has everything, has not noticed it, and gets sums of the next iteration.
  const auto deliver_all = [&](int rank) {
    bool any = true;
    while (any) {
      any = false;
      for (const RingWay way : {RingWay::kReduce, RingWay::kGather}) {
        for (const int stream : {0, 1}) any |= ring.Deliver(rank, way, stream);
      }
    }
  };
  for (int i = 0; i < 3; ++i) {
    deliver_all(0);
    deliver_all(1);
  }
  REQUIRE(ring.worker(0).round->AwaitAll().ok());
  REQUIRE(ring.Begin(0, 1).ok());
  REQUIRE(ring.PushAll(0).ok());
  deliver_all(0);
  REQUIRE(ring.worker(1).round->failure().ok());
  REQUIRE(ring.worker(1).round->AwaitAll().ok());
  REQUIRE(ring.Begin(1, 1).ok());
  REQUIRE(ring.PushAll(1).ok());
  RequireOk(ring.DeliverAll(1));
  RequireSame(ring.worker(0).parameters, ring.worker(1).parameters);
}

TEST_CASE("with 16 bits on the wire all workers have equal parameters near those of float32") {
  for (const char* encoding : {"FLOAT16", "BFLOAT16"}) {
    INFO(encoding);
    RingOfRounds exact(RingConfigOf(4, kSmallRingModel, {kMomentum}));
    RingOfRounds rounded(
        RingConfigOf(4, kSmallRingModel,
                     {kMomentum, absl::StrCat("exchange={gradient_encoding: ", encoding,
                                              " parameter_encoding: ", encoding, "}")}));
    for (int iteration = 0; iteration < 3; ++iteration) {
      RunIteration(exact, iteration, {1, 1, 1, 1}, 1);
      RunIteration(rounded, iteration, {1, 1, 1, 1}, 2);
    }
    const std::vector<float>& parameters = rounded.worker(0).parameters;
    for (int rank = 1; rank < 4; ++rank) RequireSame(rounded.worker(rank).parameters, parameters);
    double largest = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      largest = std::max<double>(largest, std::abs(parameters[i] - exact.worker(0).parameters[i]));
    }
    CHECK(largest > 0);
    CHECK(largest < 0.02);
  }
}

TEST_CASE("masters are float32, and parameters are what they round to in 16 bits") {
  RingOfRounds ring(RingConfigOf(2, kSmallRingModel,
                                 {"optimizer={kind: LION learning_rate: 0.000244140625}",
                                  "exchange={parameter_encoding: BFLOAT16}"}));
  RingReference reference(&ring.config(), &ring.plan());
  for (int iteration = 0; iteration < 16; ++iteration) {
    RunIteration(ring, iteration, {1, 1}, iteration);
    reference.Update(iteration, {1, 1});
  }
  std::vector<float> expected = reference.parameters();
  RoundTo(BFLOAT16, absl::MakeSpan(expected));
  for (const int rank : {0, 1}) RequireSame(ring.worker(rank).parameters, expected);
}

TEST_CASE("a gradient that is not finite ends the run with its worker's name") {
  for (const int culprit : {0, 1, 2}) {
    RingOfRounds ring(RingConfigOf(3, kSmallRingModel));
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(ring.Begin(rank, 0).ok());
      if (rank == culprit) {
        ring.worker(rank).gradients[ring.config().model().tensors()[2].offset + 5] =
            std::numeric_limits<float>::infinity();
      }
      REQUIRE(ring.PushAll(rank).ok());
    }
    for (const absl::Status& outcome : ring.DeliverAll(culprit)) {
      CHECK(outcome.code() == absl::StatusCode::kInvalidArgument);
      CHECK(outcome.message() == absl::StrCat("worker ", culprit,
                                              " pushed a gradient that is not finite at iteration "
                                              "0: fc2/weight element 5"));
    }
  }
}

TEST_CASE("a sum beyond float32, or beyond the encoding, ends the run") {
  RingOfRounds ring(RingConfigOf(3, kSmallRingModel));
  RingOfRounds encoded(RingConfigOf(
      3, kSmallRingModel,
      {"exchange={parameter_encoding: FLOAT16}", "optimizer={learning_rate: 1000000}"}));
  for (RingOfRounds* each : {&ring, &encoded}) {
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(each->Begin(rank, 0).ok());
      if (each == &ring) each->worker(rank).gradients[3] = 3e38f;
      REQUIRE(each->PushAll(rank).ok());
    }
  }
  for (const absl::Status& outcome : ring.DeliverAll(1)) {
    CHECK(outcome.ToString() ==
          "OUT_OF_RANGE: the sum of the gradients leaves the range of float32 in the update of "
          "iteration 0: fc1/weight element 3 "
          "[type.googleapis.com/evenshard.v1.ErrorDetail='\\x08\\x01']");
  }
  for (const absl::Status& outcome : encoded.DeliverAll(1)) {
    CHECK(outcome.code() == absl::StatusCode::kOutOfRange);
    CHECK(outcome.message().find("leaves the range of FLOAT16 in the update of iteration 0") !=
          absl::string_view::npos);
  }
}

TEST_CASE("a layer is there when the segments with its tensors are") {
  RingOfRounds ring(RingConfigOf(2, kSmallRingModel));
  RingRound& round = *ring.worker(0).round;
  CHECK(round.AwaitLayer(0).ok());  // nothing has begun
  CHECK(round.Push(0).message() == "no iteration has begun");
  for (const int rank : {0, 1}) REQUIRE(ring.Begin(rank, 0).ok());
  CHECK(ring.Begin(0, 0).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(round.AwaitLayer(4).message() == "layer 4 has not been pushed, and is waited for");
  for (const int rank : {0, 1}) REQUIRE(ring.worker(rank).round->Push(4).ok());
  CHECK(round.Push(4).message() == "layer 4 has been pushed in this iteration already");
  // fc3 is the first bucket, and shares no segment with another layer.
  for (int i = 0; i < 100; ++i) {
    ring.Deliver(i % 2, static_cast<RingWay>(i / 2 % 2), i / 4 % 2);
  }
  CHECK(round.AwaitLayer(4).ok());
  CHECK(round.is_begun());
  CHECK(round.AwaitLayer(2).message() == "layer 2 has not been pushed, and is waited for");
  for (const int rank : {0, 1}) REQUIRE(ring.worker(rank).round->Push(2).ok());
  for (const int rank : {0, 1}) REQUIRE(ring.worker(rank).round->Push(0).ok());
  RequireOk(ring.DeliverAll(3));
  CHECK(round.AwaitLayer(4).ok());
  CHECK(!round.is_begun());
}

TEST_CASE("what cannot come from the predecessor is refused") {
  const std::vector<char> bytes(64 * sizeof(float));
  const Segments data = {{bytes.data(), bytes.size()}};
  const auto error_of = [&](const GradientHeader& header, const Segments& received) {
    RingOfRounds ring(RingConfigOf(3, kSmallRingModel));
    REQUIRE(ring.Begin(0, 0).ok());
    REQUIRE(ring.PushAll(0).ok());
    const absl::Status status = ring.worker(0).round->TakeReduced({header, received}, nullptr);
    CHECK(ring.worker(0).round->failure() == status);
    return std::string(status.message());
  };
  CHECK(error_of({.chunk = 1000000}, data).find("worker 2 sent chunk 1000000, and there are ") ==
        0);
  CHECK(error_of({.chunk = 0, .encoding = FLOAT16}, data) ==
        "worker 2 sent chunk 0 in FLOAT16 instead of FLOAT32");
  CHECK(error_of({.chunk = 0}, {}) == "worker 2 sent 0 bytes of chunk 0 instead of 256");
  CHECK(error_of({.chunk = 0, .weight = std::nanf("")}, data) ==
        "worker 2 sent a sum of chunk 0 with the weight nan, allowed: above 0");
  CHECK(error_of({.iteration = 2, .chunk = 0}, data) ==
        "worker 2 sent a sum of chunk 0 of iteration 2, which cannot come in iteration 0");
  RingOfRounds ring(RingConfigOf(3, kSmallRingModel));
  CHECK(ring.worker(0).round->TakeGathered({{.chunk = 0}, data}).code() ==
        absl::StatusCode::kInvalidArgument);  // nothing has begun
  RingOfRounds twice(RingConfigOf(3, kSmallRingModel));
  REQUIRE(twice.worker(0).round->TakeReduced({{.chunk = 0}, data}, nullptr).ok());
  CHECK(twice.worker(0).round->TakeReduced({{.chunk = 0}, data}, nullptr).message() ==
        "worker 2 sent a sum of chunk 0 of iteration 0, which cannot come in iteration 0");
}

TEST_CASE("a worker whose last message does not leave waits for its successor only") {
  RingOfRounds ring(RingConfigOf(2, kSmallRingModel, {}));
  for (int rank : {0, 1}) {
    REQUIRE(ring.Begin(rank, 0).ok());
    REQUIRE(ring.PushAll(rank).ok());
  }
  RingRound& round = *ring.worker(0).round;
  // Worker 0's parameters do not leave.
  while (!round.only_sends()) {
    for (const int stream : {0, 1}) {
      ring.Deliver(0, RingWay::kReduce, stream);
      ring.Deliver(1, RingWay::kReduce, stream);
      ring.Deliver(1, RingWay::kGather, stream);
    }
  }
  std::thread wait([&] { round.AwaitAll().IgnoreError(); });
  absl::Time now = absl::UnixEpoch();
  std::optional<Stall> stall;
  while (!stall.has_value() || stall->lasted < absl::Seconds(5)) {
    stall = round.CheckProgress(now);
    now += round.watch_period();
  }
  CHECK(round.only_sends());
  CHECK(stall->missing.find(" chunks have not been sent") != std::string::npos);
  round.Fail(absl::DeadlineExceededError(stall->missing));
  wait.join();
}

TEST_CASE("a wait without progress is a stall, which says what is missing") {
  RingOfRounds ring(RingConfigOf(2, kSmallRingModel, {"limits.exchange_seconds=20"}));
  RingRound& round = *ring.worker(0).round;
  CHECK(round.limit() == absl::Seconds(20));
  REQUIRE(ring.Begin(0, 0).ok());
  REQUIRE(ring.PushAll(0).ok());
  CHECK(!round.waits());
  std::thread wait([&] { round.AwaitAll().IgnoreError(); });
  absl::Time now = absl::UnixEpoch();
  std::optional<Stall> stall;
  while (!stall.has_value() || stall->lasted < round.limit()) {
    stall = round.CheckProgress(now);
    now += round.watch_period();
  }
  CHECK(round.waits());
  CHECK_FALSE(round.only_sends());
  CHECK(stall->iteration == 0);
  CHECK(stall->missing.find("worker 1 has sent nothing, and ") == 0);
  round.Fail(absl::DeadlineExceededError(stall->missing));
  wait.join();
  // Its successor, which asks now, must not take it for the one that has not pushed.
  CHECK(round.waits());
}

}  // namespace
}  // namespace evenshard
