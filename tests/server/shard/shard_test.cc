// What pushes do to a shard, and what it refuses; shard_workers_test.cc has who takes part.

#include "server/shard/shard.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/server/shard/shard_fixture.h"

namespace evenshard {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

TEST_CASE_METHOD(ShardFixture, "a gradient in another encoding is refused and changes nothing") {
  Start(1, {"exchange.gradient_encoding=FLOAT16"});
  GradientHeader header = Header(0, 0);
  for (const auto& [encoding, name] : {std::pair<int, std::string>(FLOAT32, "FLOAT32"),
                                       {BFLOAT16, "BFLOAT16"},
                                       {17, "encoding 17"},
                                       {-1, "encoding -1"}}) {
    header.encoding = encoding;
    const absl::Status status = Push(header, {1, 2, 3, 4});
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Message(status) == "worker 0 pushed chunk 0 as " + name +
                                 "; allowed: FLOAT16, the run's exchange.gradient_encoding");
  }
  CHECK(Parameters() == start);
  CHECK(Push(0, 0, {1, 2, 3, 4}).ok());
}

TEST_CASE_METHOD(ShardFixture, "half-width gradients are applied in float32 and counted as sent") {
  for (const std::string encoding : {"FLOAT16", "BFLOAT16"}) {
    for (const std::string policy : {"SYNC", "ASYNC"}) {
      CAPTURE(encoding, policy);
      ShardFixture fixture;
      fixture.Start(2, {"exchange.gradient_encoding=" + encoding, "update.policy=" + policy});
      REQUIRE(fixture.Push(0, 0, {1, -2, 0.5, 0}).ok());
      REQUIRE(fixture.Push(1, 0, {3, -2, 0.25, 96}).ok());
      const float share = policy == "SYNC" ? 0.5 : 1;
      const std::vector<float> expected = {4 * share, -4 * share, 0.75f * share, 96 * share};
      const std::vector<float> applied = fixture.Applied();
      for (size_t i = 0; i < 4; ++i) CHECK(applied[i] == Approx(expected[i]).margin(1e-5));
      CHECK(fixture.shard->Stats().bytes_in() == 2 * 4 * 2);
      CHECK(fixture.shard->Stats().worker(1).bytes_in() == 4 * 2);

      const absl::Status wrong = fixture.Push(0, 1, {1, 2, 3});
      CHECK_THAT(Message(wrong), Contains("6 bytes for chunk 0, which takes 8"));
    }
  }
}

TEST_CASE_METHOD(ShardFixture, "block-scaled gradients of the right length only are applied") {
  for (const auto& [encoding, length] :
       {std::pair<std::string, uint64_t>("INT8", 6), {"INT4", 4}, {"E3M0", 4}}) {
    for (const std::string policy : {"SYNC", "ASYNC"}) {
      CAPTURE(encoding, policy);
      ShardFixture fixture;
      fixture.Start(2, {"exchange.gradient_encoding=" + encoding, "update.policy=" + policy});
      REQUIRE(fixture.Push(0, 0, {1, -0.5, 0, 0}).ok());
      REQUIRE(fixture.Push(1, 0, {0, -1, 0.5, 0}).ok());
      const float share = policy == "SYNC" ? 0.5 : 1;
      const std::vector<float> expected = {share, -1.5f * share, 0.5f * share, 0};
      const std::vector<float> applied = fixture.Applied();
      // INT4 is off by a fourteenth of the largest element in each of both.
      for (size_t i = 0; i < 4; ++i) CHECK(applied[i] == Approx(expected[i]).margin(0.15));
      CHECK(fixture.shard->Stats().bytes_in() == 2 * length);
      for (const size_t size : {2, 5, 300}) {
        const std::vector<float> values(size, 1);
        const int64_t bytes = EncodedBytes(fixture.config->proto().exchange().gradient_encoding(),
                                           static_cast<int64_t>(size));
        CHECK_THAT(Message(fixture.Push(0, 1, values)),
                   Contains(absl::StrCat("worker 0 pushed ", bytes,
                                         " bytes for chunk 0, which takes ", length)));
      }
    }
  }
}

TEST_CASE_METHOD(ShardFixture, "REJECT: a gradient beyond the range of float16 fails the run") {
  Start(2, {"exchange.gradient_encoding=FLOAT16"});
  REQUIRE(Push(0, 0, {65504, 65519, -65519, 1e-8f}).ok());  // the largest; 0
  const absl::Status status = Push(1, 0, {0, 65520, 0, 0});
  CHECK(absl::IsInvalidArgument(status));
  CHECK(Message(status) ==
        "worker 1 pushed a gradient that is not finite (or beyond 65504, the largest FLOAT16) at "
        "iteration 0: fc/weight element 1 (chunk 0)");
  REQUIRE(failures.size() == 1);
  CHECK(Parameters() == start);
}

TEST_CASE_METHOD(ShardFixture, "a gradient of wrong length is refused and changes nothing") {
  Start(1);
  for (const std::vector<float>& values : {std::vector<float>{}, {1, 2, 3}, {1, 2, 3, 4, 5}}) {
    const absl::Status status = Push(0, 0, values);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(Message(status),
               Contains(std::to_string(values.size() * 4) + " bytes for chunk 0, which takes 16"));
  }
  GradientHeader skip = Header(0, 0);
  skip.skip = true;
  CHECK_THAT(Message(Push(skip, {1, 2, 3, 4})), Contains("with `skip`, which takes 0"));
  GradientHeader absent = Header(0, 0);
  absent.absent = true;
  CHECK_THAT(Message(Push(absent, {1, 2, 3, 4})), Contains("with `absent`, which takes 0"));
  absent.skip = true;
  CHECK_THAT(Message(Push(absent, {})), Contains("with `absent` and `skip`; allowed: one of them"));
  CHECK(Parameters() == start);
  CHECK(shard->Stats().pushes() == 0);
  CHECK(Push(0, 0, {1, 2, 3, 4}).ok());  // and the run goes on
}

TEST_CASE_METHOD(ShardFixture, "an unknown chunk is refused") {
  Start(1);
  GradientHeader header = Header(0, 0);
  for (const uint32_t chunk : {1u, 4'000'000'000u}) {
    header.chunk = chunk;
    const absl::Status status = Push(header, {1, 2, 3, 4});
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(Message(status), Contains("which shard 0 does not own"));
  }
}

TEST_CASE_METHOD(ShardFixture, "REJECT: a value that is not finite fails the run and is named") {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    ShardFixture fixture;
    fixture.Start(2);
    const absl::Status status = fixture.Push(1, 0, {0, 0, bad, 0});
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Message(status) ==
          "worker 1 pushed a gradient that is not finite at iteration 0: fc/weight element 2 "
          "(chunk 0)");
    REQUIRE(fixture.failures.size() == 1);
    CHECK(fixture.failures[0] == status);
    CHECK(fixture.Parameters() == fixture.start);
    CHECK(fixture.Push(0, 0, {1, 1, 1, 1}) == status);  // others hear why
    const absl::Status refused = fixture.shard->Join(fixture.RequestFor(0, 77), "test").status();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK_THAT(Message(refused), Contains("the run has failed") && Contains(Message(status)));
    CHECK(fixture.shard->Stats().failure() == Message(status));
  }
}

TEST_CASE_METHOD(ShardFixture,
                 "SKIP: a value that is not finite is refused but harms nobody else") {
  Start(2, {"update.policy=ASYNC", "update.non_finite=SKIP"});
  CHECK(absl::IsInvalidArgument(Push(1, 0, {0, 0, std::nanf(""), 0})));
  CHECK(failures.empty());
  CHECK(Push(0, 0, {1, 1, 1, 1}).ok());
}

TEST_CASE_METHOD(ShardFixture, "a failed run keeps no gradient and no stream of its workers") {
  Start(3, {"update.deterministic=true"});
  REQUIRE(Push(1, 0, {1, 1, 1, 1}).ok());  // kept for worker 0
  CHECK(!last_owner.expired());
  CHECK(sinks[1].use_count() == 2);
  shard->CloseStream(sessions[0].get());
  CHECK(last_owner.expired());
  CHECK(sinks[1].use_count() == 1);
  CHECK(Replies(1) == 0);
  CHECK(!Push(0, 0, {1, 1, 1, 1}).ok());
}

TEST_CASE_METHOD(ShardFixture, "a weight whose inverse would leave float32 is refused") {
  Start(1, {"update.policy=ASYNC"});
  for (const float weight : {0.0f, 1e-39f, 2e6f, std::numeric_limits<float>::quiet_NaN()}) {
    GradientHeader header = Header(0, 0);
    header.weight = weight;
    const absl::Status refused = Push(header, {0, 0, 0, 0});
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(Message(refused), Contains("allowed: 1e-09 to 1e+06"));
  }
}

TEST_CASE_METHOD(ShardFixture, "a push that is refused does not move the rank's next iteration") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  for (const uint64_t iteration : {uint64_t{1} << 53, uint64_t{5000}, UINT64_MAX}) {
    const absl::Status refused = Push(0, iteration, {1, 1, 1, 1}, 1);
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK_THAT(Message(refused),
               Contains("the shard expects up to 0 (repeats) or iterations 1 to 1001"));
  }
  CHECK(absl::IsInvalidArgument(Push(0, 1, {1, 1, 1, 1}, /*base_version=*/99)));
  CHECK(shard->Stats().worker(0).pushes() == 1);
  CHECK(shard->Stats().worker(0).bytes_in() == 16);
  REQUIRE(Leave(0).ok());
  const auto joined = shard->Join(RequestFor(0, 77), "test");
  REQUIRE(joined.ok());
  CHECK(joined->start_iteration() == 1);
}

TEST_CASE_METHOD(ShardFixture,
                 "gradients whose sum leaves float32's range fail the run, unapplied") {
  const std::string deterministic = GENERATE("false", "true");
  const std::string non_finite = GENERATE("REJECT", "SKIP");
  // With clipping the overflow would not show in the parameters.
  const std::string clip = GENERATE("0", "1");
  Start(3, {"update.deterministic=" + deterministic, "update.non_finite=" + non_finite,
            "update.clip_value=" + clip});
  REQUIRE(Push(0, 0, {0, 3e38f, 0, 0}).ok());
  REQUIRE(Push(1, 0, {0, 3e38f, 0, 0}).ok());
  absl::Status status;
  SECTION("in the last gradient") { status = Push(2, 0, {0, 1, 0, 0}); }
  SECTION("before the last worker, which skips") {
    GradientHeader skip = Header(2, 0);
    skip.skip = true;
    status = Push(skip, {});
  }
  CHECK(absl::IsOutOfRange(status));
  CHECK(Message(status) ==
        "the sum of the gradients leaves the range of float32 in the update of iteration 0: "
        "fc/weight element 1 (chunk 0)");
  REQUIRE(failures.size() == 1);
  CHECK(failures[0] == status);
  CHECK(Parameters() == start);
  CHECK(Replies(0) == 0);
}

TEST_CASE_METHOD(ShardFixture, "parameters that leave float32's range fail the run") {
  const auto [policy, optimizer, what] = GENERATE(table<std::string, std::string, std::string>(
      {{"ASYNC", "{kind: SGD learning_rate: 1000}", "a parameter"},
       {"SYNC", "{kind: SGD learning_rate: 1000}", "a parameter"},
       // The square of the gradient, which would stop the parameter for good.
       {"SYNC", "{kind: ADAM learning_rate: 0.1}", "the optimizer's state"},
       {"ASYNC", "{kind: ADAGRAD learning_rate: 0.1}", "the optimizer's state"}}));
  CAPTURE(policy, optimizer);
  Start(1, {"update.policy=" + policy, "optimizer=" + optimizer});
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  const absl::Status status = Push(0, 1, {0, 0, 0, 3e38f}, 1);
  CHECK(absl::IsOutOfRange(status));
  CHECK_THAT(Message(status), Contains(what) && Contains("leaves the range of float32") &&
                                  Contains("iteration 1: fc/weight element 3"));
  CHECK(failures.size() == 1);
  CHECK(Replies(0) == 1);
}

TEST_CASE_METHOD(ShardFixture, "pushes, skips and repeats are counted alike by shard and worker") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  GradientHeader skip = Header(0, 1, 1);
  skip.skip = true;
  REQUIRE(Push(skip, {}).ok());
  REQUIRE(Push(1, 0, {1, 1, 1, 1}).ok());
  const ShardStats stats = shard->Stats();
  CHECK(stats.pushes() == 2);
  CHECK(stats.repeated_pushes() == 1);
  CHECK(stats.skipped_pushes() == 1);
  CHECK(stats.bytes_in() == 3 * 16);
  CHECK(stats.worker(0).pushes() == 1);
  CHECK(stats.worker(0).repeated_pushes() == 1);
  CHECK(stats.worker(0).skipped_pushes() == 1);
  CHECK(stats.worker(0).bytes_in() == 2 * 16);
  uint64_t staleness = 0;
  for (const StalenessBucket& bucket : stats.staleness()) staleness += bucket.pushes();
  CHECK(staleness == stats.pushes());
}

TEST_CASE_METHOD(ShardFixture, "what ends because a shard closes is not called a failure") {
  Start(2);
  CHECK(shard->Close(absl::UnavailableError("shutting down")));
  CHECK(shard->Stats().failure().empty());  // the run has not failed
  shard->CloseStream(sessions[1].get());
  CHECK(failures.empty());
  CHECK(absl::IsUnavailable(Push(0, 0, {1, 1, 1, 1})));
}

TEST_CASE_METHOD(ShardFixture, "statistics describe what the shard owns") {
  Start(2);
  clock.Advance(absl::Seconds(5));
  const ShardStats stats = shard->Stats();
  CHECK(stats.parameters() == 4);
  CHECK(stats.parameter_bytes() == 16);
  CHECK(stats.chunks() == 1);
  CHECK(stats.uptime_seconds() == Approx(5));
  CHECK(stats.resident_bytes() > 1'000'000);
  CHECK(stats.plan_fingerprint() == config->plan().fingerprint());
  CHECK(stats.incarnation() == shard->incarnation());
  CHECK(stats.worker_size() == 2);
}

TEST_CASE_METHOD(ShardFixture,
                 "a shard that may have lost its role takes nothing until it is sure") {
  Start(2, {"update.policy=" + std::string(GENERATE("SYNC", "ASYNC"))});
  holds_roles = false;
  CHECK(absl::IsUnavailable(Push(0, 0, {1, 2, 3, 4})));
  CHECK(absl::IsUnavailable(shard->Join(RequestFor(1, 7), "test").status()));
  CHECK(absl::IsUnavailable(shard->CheckHoldsRole()));
  CHECK(shard->failure().ok());
  CHECK(Parameters() == start);
  CHECK(Replies(0) == 0);
  holds_roles = true;
  // The worker comes back and pushes again.
  CHECK(Push(0, 0, {1, 2, 3, 4}).ok());
  CHECK(Push(1, 0, {1, 2, 3, 4}).ok());
  CHECK(Replies(0) == 1);
}

}  // namespace evenshard
