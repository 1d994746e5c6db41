#include "server/update/update_policy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/update/make_update_policy.h"
#include "tests/server/shard/shard_fixture.h"

namespace evenshard {
namespace {

using Floats = std::vector<float>;

void RequireNear(const Floats& actual, const Floats& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(i);
    REQUIRE(actual[i] == Approx(expected[i]).margin(1e-6));
  }
}

}  // namespace

TEST_CASE_METHOD(ShardFixture, "SYNC applies the mean once, when the last worker has pushed") {
  Start(3);
  REQUIRE(Push(0, 0, {3, 0, 0, 0}).ok());
  REQUIRE(Push(2, 0, {0, 6, 0, 0}).ok());
  CHECK(Replies(0) == 0);
  RequireNear(Applied(), {0, 0, 0, 0});
  clock.Advance(absl::Seconds(2));
  REQUIRE(Push(1, 0, {3, 0, 0, 9}).ok());
  RequireNear(Applied(), {2, 2, 0, 3});
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(Replies(rank) == 1);
    CHECK(sinks[rank]->replies[0] == std::make_pair(0u, uint64_t{0}));
  }
  const ShardStats stats = shard->Stats();
  CHECK(stats.pushes() == 3);
  CHECK(stats.updates() == 1);
  CHECK(stats.bytes_in() == 48);
  CHECK(stats.straggler_wait_seconds() == Approx(2));
}

TEST_CASE_METHOD(ShardFixture, "SYNC with one worker applies each gradient as received") {
  Start(1);
  REQUIRE(Push(0, 0, {1, 2, 3, 4}).ok());
  REQUIRE(Push(0, 1, {1, 1, 1, 1}, 1).ok());
  RequireNear(Applied(), {2, 3, 4, 5});
  CHECK(Replies(0) == 2);
}

TEST_CASE_METHOD(ShardFixture, "SYNC counts a repeated push once and answers it") {
  Start(2);
  REQUIRE(Push(0, 0, {2, 0, 0, 0}).ok());
  REQUIRE(Push(0, 0, {2, 0, 0, 0}).ok());  // again, before the update
  REQUIRE(Push(1, 0, {0, 2, 0, 0}).ok());
  RequireNear(Applied(), {1, 1, 0, 0});
  CHECK(Replies(0) == 1);
  REQUIRE(Push(0, 0, {2, 0, 0, 0}).ok());  // again, after the update
  CHECK(Replies(0) == 2);
  RequireNear(Applied(), {1, 1, 0, 0});
  CHECK(shard->Stats().pushes() == 2);
  CHECK(shard->Stats().repeated_pushes() == 2);
}

TEST_CASE_METHOD(ShardFixture, "SYNC refuses an iteration that the chunk cannot be at") {
  Start(2);
  const absl::Status ahead = Push(0, 1, {0, 0, 0, 0});
  CHECK(absl::IsFailedPrecondition(ahead));
  CHECK_THAT(std::string(ahead.message()),
             Catch::Contains("chunk 0 for iteration 1; the shard expects iteration 0"));
}

TEST_CASE_METHOD(ShardFixture, "a skipping worker counts as arrived but not in the mean") {
  const int skipping = GENERATE(0, 1, 2);  // the first, between, the last
  Start(3);
  for (int rank = 0; rank < 3; ++rank) {
    GradientHeader skip = Header(rank, 0);
    skip.skip = true;
    REQUIRE((rank == skipping ? Push(skip, {}) : Push(rank, 0, {4, 0, 0, 2})).ok());
  }
  RequireNear(Applied(), {4, 0, 0, 2});
  CHECK(Replies(0) == 1);
  CHECK(shard->Stats().skipped_pushes() == 1);
  CHECK(shard->Stats().pushes() == 2);
}

TEST_CASE_METHOD(ShardFixture, "no update is made when every worker skips") {
  Start(2);
  for (int rank = 0; rank < 2; ++rank) {
    GradientHeader skip = Header(rank, 0);
    skip.skip = true;
    REQUIRE(Push(skip, {}).ok());
  }
  CHECK(shard->Stats().updates() == 0);
  CHECK(Replies(0) == 1);
  CHECK(Replies(1) == 1);
  REQUIRE(Push(0, 1, {1, 0, 0, 0}).ok());  // and the next iteration goes on
}

TEST_CASE_METHOD(ShardFixture, "deterministic order adds up by rank in any order of arrival") {
  // 1e8 + 1 - 1e8 is 0 in float32, -1e8 + 1e8 + 1 is 1: the order shows.
  const std::vector<Floats> gradients = {{1e8f, 0, 0, 0}, {1, 0, 0, 0}, {-1e8f, 3, 0, 0}};
  std::vector<int> order = {0, 1, 2};
  do {
    ShardFixture fixture;
    fixture.Start(3, {"update.deterministic=true"});
    for (const int rank : order) REQUIRE(fixture.Push(rank, 0, gradients[rank]).ok());
    RequireNear(fixture.Applied(), {0, 1, 0, 0});
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(ShardFixture,
                 "deterministic order holds an early gradient no longer than needed") {
  Start(3, {"update.deterministic=true"});
  REQUIRE(Push(1, 0, {1, 0, 0, 0}).ok());
  const std::weak_ptr<const void> early = last_owner;
  CHECK_FALSE(early.expired());
  REQUIRE(Push(0, 0, {1, 0, 0, 0}).ok());
  CHECK(early.expired());
  CHECK(last_owner.expired());  // rank 0 never waits
}

TEST_CASE_METHOD(ShardFixture, "ASYNC applies and answers each push at once") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Push(0, 0, {1, 0, 0, 0}).ok());
  CHECK(Replies(0) == 1);
  REQUIRE(Push(0, 1, {1, 0, 0, 0}, 1).ok());
  REQUIRE(Push(1, 0, {0, 5, 0, 0}).ok());  // computed two updates ago
  RequireNear(Applied(), {2, 5, 0, 0});
  const ShardStats stats = shard->Stats();
  CHECK(stats.updates() == 3);
  REQUIRE(stats.staleness_size() == 2);
  CHECK(stats.staleness(0).from() == 0);
  CHECK(stats.staleness(0).pushes() == 2);
  CHECK(stats.staleness(1).from() == 2);
  CHECK(stats.staleness(1).pushes() == 1);
}

TEST_CASE_METHOD(ShardFixture, "ASYNC counts a repeated push once and answers it") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Push(0, 0, {1, 0, 0, 0}).ok());
  REQUIRE(Push(0, 0, {1, 0, 0, 0}).ok());
  RequireNear(Applied(), {1, 0, 0, 0});
  CHECK(Replies(0) == 2);
  CHECK(shard->Stats().repeated_pushes() == 1);
}

TEST_CASE_METHOD(ShardFixture, "ASYNC refuses an iteration that is far ahead") {
  Start(1, {"update.policy=ASYNC"});
  REQUIRE(Push(0, 0, {1, 0, 0, 0}).ok());
  REQUIRE(Push(0, 4, {1, 0, 0, 0}, 1).ok());  // a restarted worker may go on after a gap
  const absl::Status refused = Push(0, 1006, {9, 9, 9, 9}, 2);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message() ==
        "worker 0 pushed chunk 0 for iteration 1006; the shard expects up to 4 (repeats) or "
        "iterations 5 to 1005");
  // What comes late by another connection is answered and does not count, as a repeat is.
  for (const uint64_t iteration : {0, 3}) REQUIRE(Push(0, iteration, {9, 9, 9, 9}).ok());
  CHECK(Replies(0) == 4);
  REQUIRE(Push(0, 4, {1, 0, 0, 0}, 1).ok());  // a repeat
  RequireNear(Applied(), {2, 0, 0, 0});
  REQUIRE(Push(0, 1005, {1, 0, 0, 0}, 2).ok());
}

TEST_CASE_METHOD(ShardFixture, "ASYNC goes on where a checkpoint has other chunks further on") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Push(1, 1500, {1, 0, 0, 0}).ok());
  RequireNear(Applied(), {1, 0, 0, 0});
  CHECK(absl::IsFailedPrecondition(Push(1, 3000, {9, 9, 9, 9}, 1)));
}

TEST_CASE_METHOD(ShardFixture, "the largest iteration is not taken for the one before 0") {
  const std::string policy = GENERATE("SYNC", "ASYNC", "SSP staleness: 1");
  Start(1, {"update={policy: " + policy + "}"});
  CHECK(absl::IsFailedPrecondition(Push(0, UINT64_MAX, {1, 1, 1, 1})));
  // Clocks are compared with a staleness added.
  CHECK(absl::IsFailedPrecondition(Push(0, UINT64_MAX - 1, {1, 1, 1, 1})));
  CHECK(Replies(0) == 0);
  CHECK(shard->Stats().repeated_pushes() == 0);
}

TEST_CASE_METHOD(ShardFixture,
                 "an update that waits names the chunk, the time and who is missing") {
  Start(3);
  CHECK(shard->Stats().updates() == 0);
  std::unique_ptr<UpdatePolicy> policy =
      MakeUpdatePolicy(*config, &shard->store(), ChunkObservers({&shard->snapshots()}), &clock);
  CHECK(policy->PendingUpdates().empty());
  const std::string zeros(4 * sizeof(float), '\0');
  const auto push = [&](int rank) {
    return policy->Push(0, *sessions[rank], Gradient{Header(rank, 0), {zeros}, nullptr},
                        sinks[rank]);
  };
  const absl::Time first = clock.Now();
  REQUIRE(push(1).ok());
  clock.Advance(absl::Seconds(3));
  REQUIRE(push(0).ok());
  const std::vector<UpdatePolicy::Pending> pending = policy->PendingUpdates();
  REQUIRE(pending.size() == 1);
  CHECK(pending[0].chunk == 0);
  CHECK(pending[0].iteration == 0);
  CHECK(pending[0].since == first);
  CHECK(pending[0].missing == std::vector<uint32_t>{2});
  REQUIRE(push(2).ok());
  CHECK(policy->PendingUpdates().empty());
}

TEST_CASE_METHOD(ShardFixture, "a gradient of a version that does not exist yet is refused") {
  Start(2);
  const absl::Status status = Push(0, 0, {1, 0, 0, 0}, /*base_version=*/1);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("from version 1; the shard is at version 0"));
}

TEST_CASE_METHOD(ShardFixture, "the learning-rate schedule follows the iteration") {
  Start(1, {"optimizer.schedule={kind: STEP step_iterations: 1 gamma: 0.5}"});
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  REQUIRE(Push(0, 1, {1, 1, 1, 1}, 1).ok());
  RequireNear(Applied(), {1.5, 1.5, 1.5, 1.5});
}

}  // namespace evenshard
