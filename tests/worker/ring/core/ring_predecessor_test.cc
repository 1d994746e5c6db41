#include "worker/ring/core/ring_predecessor.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/base/error_kind.h"
#include "common/wire/chunk_codec.h"
#include "tests/worker/ring/core/ring_of_rounds.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Worker 1 of a ring of three, whose predecessor is worker 0.
struct Fixture {
  RingJoinRequest Request(uint64_t incarnation) const {
    RingJoinRequest join;
    join.set_worker(0);
    join.set_successor(1);
    join.set_incarnation(incarnation);
    join.set_protocol_version(kProtocolVersion);
    join.set_plan_version(kRingPlanVersion);
    join.set_config_fingerprint(config.fingerprint());
    join.set_plan_fingerprint(plan.fingerprint());
    return join;
  }

  absl::Status Join(const RingJoinRequest& join) {
    const absl::Status fits = predecessor.CheckJoin(join);
    return fits.ok() ? predecessor.TakeUp(join.incarnation()) : fits;
  }

  const PlannedConfig config = RingConfigOf(3, kSmallRingModel);
  const RingPlan plan = *RingPlan::Create(config.model(), RingPlan::OptionsOf(config.proto()));
  RingPredecessor predecessor{{.config = &config, .plan = &plan, .rank = 1, .predecessor = 0}};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "only the incarnation that has joined may speak") {
  CHECK_FALSE(predecessor.Check(0, 0).ok());
  CHECK_FALSE(predecessor.Check(0, 7).ok());
  REQUIRE(Join(Request(7)).ok());
  CHECK(predecessor.Check(0, 7).ok());
  CHECK_FALSE(predecessor.Check(0, 8).ok());
  CHECK(predecessor.Check(2, 7).message() == "worker 2 has not joined worker 1");

  // One that has opened nothing was started again.
  REQUIRE(Join(Request(8)).ok());
  CHECK_FALSE(predecessor.Check(0, 7).ok());
  REQUIRE(predecessor.Open().ok());
  CHECK(absl::IsAlreadyExists(Join(Request(9))));
  CHECK(predecessor.Check(0, 8).ok());
}

TEST_CASE_METHOD(Fixture, "a predecessor opens as many streams as it should, and closes them") {
  REQUIRE(Join(Request(7)).ok());
  for (int stream = 0; stream < 4; ++stream) {
    CHECK_FALSE(predecessor.has_opened_all());
    REQUIRE(predecessor.Open().ok());
  }
  CHECK(predecessor.has_opened_all());
  CHECK(absl::IsResourceExhausted(predecessor.Open()));
  for (int stream = 0; stream < 3; ++stream) CHECK_FALSE(predecessor.Close());
  CHECK(predecessor.Close());
}

TEST_CASE_METHOD(Fixture, "who is another worker, or runs something else, is told what differs") {
  RingJoinRequest join = Request(7);
  std::string reason;
  SECTION("the version") {
    join.set_protocol_version(kProtocolVersion + 1);
    reason = "allowed: the same build everywhere";
  }
  SECTION("the config") {
    join.set_config_fingerprint(1);
    reason = "worker 0 has another config than worker 1";
  }
  SECTION("the plan") {
    join.set_plan_fingerprint(1);
    reason = "worker 0 has another plan than worker 1";
  }
  SECTION("the rank") {
    join.set_worker(2);
    reason = "the addresses in `ring` are mixed up";
  }
  SECTION("the generation") {
    join.set_generation(2);
    reason = "worker 0 is in generation 2 of the run, and worker 1 in 0";
  }
  SECTION("the incarnation") {
    join.set_incarnation(0);
    reason = "the incarnation is 0";
  }
  CHECK_THAT(std::string(Join(join).message()), Contains(reason));
  CHECK_FALSE(predecessor.Check(join.worker(), join.incarnation()).ok());
}

TEST_CASE("news of a failure are an error with a reason, whatever they say") {
  RingFailure failure;
  failure.set_worker(2);
  CHECK(NewsOf(failure) == absl::UnknownError("worker 2 has ended the run and gives no reason"));
  failure.set_code(static_cast<int>(absl::StatusCode::kAborted));
  failure.set_reason("it was\ntold to");
  CHECK(NewsOf(failure) == absl::AbortedError("it was\\ntold to"));
  failure.set_differing_state("the\nsampler");
  CHECK(DifferingStateOf(NewsOf(failure)) == "the\\nsampler");
}

}  // namespace evenshard
