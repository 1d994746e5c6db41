// What SYNC does under views, and with an observer. update_policy_test.cc has the rest.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

const WorkerSetList kAll = {{0, {0, 1, 2}}};

}  // namespace

TEST_CASE_METHOD(PolicyFixture, "SYNC drops a push of an older view and refuses a newer one") {
  Start(2);
  Adopt({{0, {0, 1}}});
  view = 0;
  CHECK(Push(0, 0, 4).ok());
  view = 2;
  const absl::Status newer = Push(0, 0, 4);
  CHECK(absl::IsUnavailable(newer));
  CHECK_THAT(std::string(newer.message()), Catch::Contains("view 2"));
  view = 1;
  CHECK(Push(1, 0, 6).ok());
  CHECK(Replies(0) == 0);
  CHECK(Iteration() == 0);  // neither of worker 0's has been counted
  CHECK(Push(0, 0, 2).ok());
  CHECK(Applied() == 4);
  CHECK(Replies(0) == 1);
}

TEST_CASE_METHOD(PolicyFixture, "a push that was counted stays so in the next view") {
  Start(2);
  CHECK(Push(0, 0, 2).ok());
  Adopt({{0, {0, 1}}});
  CHECK(Push(0, 0, 100).ok());  // pushed again, since it was not answered
  CHECK(Push(1, 0, 4).ok());
  CHECK(Applied() == 3);
  CHECK(Replies(0) == 1);
}

TEST_CASE_METHOD(PolicyFixture, "a view does not change who is ahead of others") {
  Start(2, {"limits.lead_bytes=0"});
  for (const int index : {0, 1}) CHECK(Push(0, 0, 1, index).ok());
  Adopt({{0, {0, 1}}});
  CHECK(Push(1, 0, 1).ok());
  CHECK(policy->PushWait(1) == absl::ZeroDuration());  // it is still a chunk behind
  CHECK(policy->PushWait(0) > absl::ZeroDuration());
  CHECK(Push(1, 0, 1, 1).ok());
  CHECK(policy->PushWait(0) == absl::ZeroDuration());
}

TEST_CASE_METHOD(PolicyFixture, "nobody is ahead of a worker that joins because of that") {
  Start(3, {"limits.lead_bytes=0"});
  Adopt({{0, {0, 1}}, {2, {0, 1, 2}}});
  for (const uint64_t iteration : {0, 1}) {
    for (const int index : {0, 1}) {
      for (const int rank : {0, 1}) CHECK(Push(rank, iteration, 1, index).ok());
    }
  }
  CHECK(Iteration() == 2);
  for (const int rank : {0, 1, 2}) CHECK(Push(rank, 2, 1).ok());
  for (const int rank : {0, 1, 2}) CHECK(policy->PushWait(rank) == absl::ZeroDuration());
}

TEST_CASE_METHOD(PolicyFixture, "an update that only a lost worker held up is made without it") {
  const bool deterministic = GENERATE(false, true);
  Start(3, {deterministic ? "update.deterministic=true" : "update.deterministic=false"});
  CHECK(Push(1, 0, 2).ok());
  CHECK(Push(2, 0, 4).ok());
  const SlotPosition position = Adopt(kAll, {.worker_set_changes = true});
  CHECK(position.iteration == 0);
  CHECK(position.least_iteration == 0);
  CHECK(Iteration() == 0);
  Adopt({{0, {0, 1, 2}}, {1, {1, 2}}});
  CHECK(Iteration() == 1);
  CHECK(Iteration(1) == 0);  // nobody has pushed it
  CHECK(Applied() == 3);
  CHECK(Replies(1) == 1);
  CHECK(Replies(2) == 1);
  CHECK(observer.changes.at(0).workers == ChunkChange::Workers{1, 2});
  CHECK(policy->PendingUpdates().empty());
}

TEST_CASE_METHOD(PolicyFixture, "what a lost worker has pushed before the fence counts") {
  Start(3);
  CHECK(Push(0, 0, 9).ok());
  CHECK(Push(1, 0, 3).ok());
  sessions[0]->End();
  CHECK(absl::IsFailedPrecondition(Push(0, 0, 9, /*index=*/1)));
  const SlotPosition position = Adopt(kAll, {.worker_set_changes = true});
  CHECK(position.least_iteration == 0);
  Adopt({{0, {0, 1, 2}}, {1, {1, 2}}});
  for (const int index : {0, 1}) {
    if (index == 1) CHECK(Push(1, 0, 3, index).ok());
    CHECK(Push(2, 0, 3, index).ok());
  }
  CHECK(Applied() == 5);
  CHECK(start - Parameter(0) == 5);
  CHECK(observer.changes.at(0).workers == ChunkChange::Workers{0, 1, 2});
  CHECK(observer.changes.at(1).workers == ChunkChange::Workers{1, 2});
  // From the worker set's change on, the update needs the others only.
  CHECK(Push(1, 1, 1).ok());
  CHECK(Push(2, 1, 1).ok());
  CHECK(Iteration() == 2);
}

TEST_CASE_METHOD(PolicyFixture, "in deterministic order, who is not waited for stops nobody") {
  Start(3, {"update.deterministic=true"});
  Adopt({{0, {0, 1, 2}}, {1, {1, 2}}});
  // 1 + 2^-24 - 1 depends on the order: the sum begins with rank 1.
  CHECK(Push(2, 0, -1).ok());
  CHECK(Push(1, 0, 1).ok());
  CHECK(Iteration() == 1);
  CHECK(Applied() == 0);
}

TEST_CASE_METHOD(PolicyFixture, "in deterministic order, a lost worker holds no gradient back") {
  Start(4, {"update.deterministic=true"});
  CHECK(Push(0, 0, 2).ok());
  CHECK(Push(2, 0, 3).ok());
  // A stream that must keep too many gradients is not read on.
  const std::weak_ptr<const void> held = last_owner;
  CHECK_FALSE(held.expired());
  Adopt({{0, {0, 1, 2, 3}}, {1, {0, 2, 3}}});
  CHECK(held.expired());
  CHECK(Iteration() == 0);
  SECTION("and it is left out") {
    CHECK(Push(3, 0, 4).ok());
    CHECK(Applied() == 3);
  }
  SECTION("and what comes of it late counts") {
    CHECK(Push(1, 0, 7).ok());
    CHECK(last_owner.expired());
    CHECK(Push(3, 0, 4).ok());
    CHECK(Applied() == 4);
  }
  CHECK(Iteration() == 1);
}

TEST_CASE_METHOD(PolicyFixture, "the order is that of ranks, whatever came first") {
  Start(3, {"update.deterministic=true"});
  // (1e8 + 1) - 1e8 is 0 in float32, and (1e8 - 1e8) + 1 is 1.
  CHECK(Push(2, 0, 1).ok());
  CHECK(Push(1, 0, -1e8f).ok());
  CHECK(Push(0, 0, 1e8f).ok());
  CHECK(Applied() == Approx(1.0f / 3));
}

TEST_CASE_METHOD(PolicyFixture, "a change of the worker set holds all updates up") {
  Start(2);
  CHECK(Push(0, 0, 2).ok());
  CHECK(Push(1, 0, 2).ok());  // chunk 0 is at iteration 1, chunk 1 at 0
  const SlotPosition position = Adopt({{0, {0, 1}}}, {.worker_set_changes = true});
  CHECK(position.iteration == 1);
  CHECK(position.least_iteration == 0);
  for (const int rank : {0, 1}) CHECK(Push(rank, 0, 2, /*index=*/1).ok());
  for (const int rank : {0, 1}) CHECK(Push(rank, 1, 2).ok());
  CHECK(Iteration(0) == 1);
  CHECK(Iteration(1) == 0);
  CHECK(policy->PendingUpdates().empty());  // nobody counts as missing
  const size_t replies = Replies(0);
  Adopt({{0, {0, 1}}});
  CHECK(Iteration(0) == 2);
  CHECK(Iteration(1) == 1);
  CHECK(Replies(0) == replies + 2);
  CHECK(Applied() == 4);
}

TEST_CASE_METHOD(
    PolicyFixture,
    "a joining worker is answered once the chunk has passed the iteration before its first") {
  Start(3);
  Adopt({{0, {0, 1}}, {2, {0, 1, 2}}});
  CHECK(Push(2, 1, 0, 0, /*skip=*/true).ok());
  CHECK(Push(2, 1, 0, 0, /*skip=*/true).ok());  // again, on another stream
  for (const uint64_t iteration : {0, 1}) {
    CHECK(Replies(2) == 0);
    CHECK(Push(0, iteration, 1).ok());
    CHECK(Push(1, iteration, 1).ok());
  }
  REQUIRE(Replies(2) == 1);
  CHECK(sinks[2]->replies[0].second == 1);
  CHECK(Applied() == 2);  // the skip did not count
  // It is waited for from its first iteration on.
  CHECK(Push(0, 2, 3).ok());
  CHECK(Push(1, 2, 3).ok());
  CHECK(Iteration() == 2);
  CHECK(Push(2, 2, 3).ok());
  CHECK(Iteration() == 3);
  // One whose eve is past already is answered at once.
  CHECK(Push(2, 1, 0, 0, /*skip=*/true).ok());
  CHECK(Replies(2) == 3);
}

TEST_CASE_METHOD(PolicyFixture, "a gradient of a worker outside of the worker set is refused") {
  Start(3);
  Adopt({{0, {0, 1}}, {2, {0, 1, 2}}});
  CHECK(absl::IsFailedPrecondition(Push(2, 0, 1)));
  CHECK(absl::IsFailedPrecondition(Push(2, 3, 0, 0, /*skip=*/true)));  // too far ahead
}

TEST_CASE_METHOD(PolicyFixture, "a slot that is handed over takes no push and makes no update") {
  Start(2);
  CHECK(Push(0, 0, 2).ok());
  Adopt({{0, {0, 1}}}, {.handing_over = true});
  CHECK(Push(1, 0, 2).ok());  // dropped
  CHECK(Iteration() == 0);
  CHECK(Replies(1) == 0);
  Adopt({{0, {0, 1}}});  // the copy was lost before it took over
  CHECK(Iteration() == 0);
  CHECK(Push(1, 0, 2).ok());
  CHECK(Iteration() == 1);
  CHECK(Applied() == 2);
}

TEST_CASE_METHOD(PolicyFixture, "handing over holds up an update that is complete") {
  Start(2);
  observer.may_change = false;
  for (const int rank : {0, 1}) CHECK(Push(rank, 0, 2).ok());
  observer.may_change = true;
  Adopt({{0, {0, 1}}}, {.handing_over = true});
  CHECK(Iteration() == 0);
  Adopt({{0, {0, 1}}});
  CHECK(Iteration() == 1);
}

TEST_CASE_METHOD(PolicyFixture, "pushes of iterations that are over are answered") {
  Start(2);
  for (const uint64_t iteration : {0, 1, 2}) {
    for (const int rank : {0, 1}) CHECK(Push(rank, iteration, 1).ok());
  }
  for (const uint64_t iteration : {0, 1, 2}) CHECK(Push(1, iteration, 50).ok());
  CHECK(Replies(1) == 6);
  CHECK(sinks[1]->replies[3].second == 0);
  CHECK(Applied() == 3);
}

TEST_CASE_METHOD(PolicyFixture, "replies wait until the change is confirmed") {
  Start(2);
  observer.keeps_replies = true;
  for (const int rank : {0, 1}) CHECK(Push(rank, 0, 1).ok());
  CHECK(Iteration() == 1);
  CHECK_FALSE(IsConfirmed());
  CHECK(Replies(0) == 0);
  CHECK(Push(1, 0, 1).ok());  // repeated: it waits too
  CHECK(Replies(1) == 0);
  policy->Confirm(0, 1);
  CHECK(IsConfirmed());
  CHECK(Replies(0) == 1);
  CHECK(Replies(1) == 2);
  CHECK(Push(1, 0, 1).ok());
  CHECK(Replies(1) == 3);
}

TEST_CASE_METHOD(PolicyFixture, "who comes anew waits for what is not confirmed") {
  // Otherwise it could push the next gradient, which would overwrite the sum that is being sent.
  Start(2);
  observer.keeps_replies = true;
  for (const int index : {0, 1}) {
    for (const int rank : {0, 1}) CHECK(Push(rank, 0, 1, index).ok());
  }
  CHECK(policy->Join(1, 1).iteration == 0);
  policy->Confirm(0, 1);
  CHECK(policy->Join(1, 1).iteration == 0);
  policy->Confirm(1, 2);
  CHECK(policy->Join(1, 1).iteration == 1);
}

TEST_CASE_METHOD(PolicyFixture, "the observer is told the whole mean, as scale times sum") {
  Start(2);
  for (const int rank : {0, 1}) CHECK(Push(rank, 0, 3).ok());
  REQUIRE(observer.changes.size() == 1);
  const ChunkChange& change = observer.changes[0];
  CHECK(change.scale == 0.5f);
  CHECK(change.encoding == FLOAT32);
  CHECK(change.rate.iteration == 0);
  REQUIRE(SegmentsSize(change.gradient) == 64);
  float first;
  std::memcpy(&first, change.gradient[0].data(), sizeof(first));
  CHECK(first == 6);
  // Nobody contributes.
  for (const int rank : {0, 1}) CHECK(Push(rank, 1, 0, 0, /*skip=*/true).ok());
  CHECK(observer.changes.at(1).gradient.empty());
  CHECK(observer.changes.at(1).workers == ChunkChange::Workers{0, 1});
  CHECK(Iteration() == 2);
}

TEST_CASE_METHOD(PolicyFixture,
                 "a worker without a gradient counts with zeros, one that skips not") {
  observer.reads_gradients = GENERATE(false, true);
  const std::vector<int> order = GENERATE(
      std::vector<int>{0, 1, 2, 3}, std::vector<int>{3, 2, 1, 0}, std::vector<int>{1, 0, 3, 2});
  CAPTURE(observer.reads_gradients, order);
  SECTION("two gradients") {
    Start(4);
    for (const int rank : order) {
      REQUIRE((rank < 2    ? Push(rank, 0, 3)
               : rank == 2 ? PushAbsent(rank, 0)
                           : Push(rank, 0, 0, 0, /*skip=*/true))
                  .ok());
    }
    CHECK(Parameter(0) == start - 2);
  }
  SECTION("one gradient") {
    Start(4);
    for (const int rank : order) {
      REQUIRE((rank == 0 ? Push(rank, 0, 4) : PushAbsent(rank, 0)).ok());
    }
    CHECK(Parameter(0) == start - 1);
    if (observer.reads_gradients) CHECK(observer.changes.at(0).scale == 0.25f);
  }
  SECTION("none") {
    Start(4);
    for (const int rank : order) REQUIRE(PushAbsent(rank, 0).ok());
    CHECK(Parameter(0) == start);
  }
  CHECK(Iteration() == 1);
  REQUIRE(observer.changes.size() == 1);
}

TEST_CASE_METHOD(PolicyFixture, "an iteration is all absent if every worker had no gradient") {
  Start(2);
  const auto is_all_absent = [&] {
    StoredChunk& chunk = store->chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.clock().all_absent;
  };
  for (const int rank : {0, 1}) CHECK(PushAbsent(rank, 0).ok());
  CHECK(is_all_absent());
  CHECK(PushAbsent(0, 1).ok());
  CHECK(is_all_absent());  // that of iteration 0, until iteration 1 is over
  CHECK(Push(1, 1, 0, 0, /*skip=*/true).ok());
  CHECK_FALSE(is_all_absent());
  for (const int rank : {0, 1}) CHECK(Push(rank, 2, 0, 0, /*skip=*/true).ok());
  CHECK_FALSE(is_all_absent());
  CHECK(PushAbsent(0, 3).ok());
  CHECK(Push(1, 3, 1).ok());
  CHECK_FALSE(is_all_absent());
}

TEST_CASE_METHOD(PolicyFixture,
                 "without a reader of gradients the update is the same, and not kept") {
  observer.reads_gradients = false;
  Start(2);
  for (const int rank : {0, 1}) REQUIRE(Push(rank, 0, static_cast<float>(1 + rank)).ok());
  CHECK(Parameter(0) == start - 1.5f);
  REQUIRE(observer.changes.size() == 1);
  CHECK(observer.changes[0].gradient.empty());
  CHECK(observer.changes[0].rate.iteration == 0);
}

TEST_CASE_METHOD(PolicyFixture,
                 "the observer hears of an update that fails, and of no change then") {
  Start(2);
  for (const int rank : {0, 1}) {
    CHECK(Push(rank, 0, 3e38f).ok() == (rank == 0));  // their sum is infinite
  }
  CHECK(absl::IsOutOfRange(observer.failure));
  CHECK(observer.changes.empty());
}

TEST_CASE_METHOD(PolicyFixture, "an update that the observer holds up is made by Resume") {
  Start(2, {GENERATE("update.deterministic=true", "update.deterministic=false")});
  observer.may_change = false;
  for (const int rank : {1, 0}) CHECK(Push(rank, 0, 2).ok());
  CHECK(Iteration() == 0);
  CHECK(Push(0, 0, 2).ok());  // repeated
  CHECK(policy->Resume(0).ok());
  CHECK(Iteration() == 0);
  observer.may_change = true;
  CHECK(policy->Resume(1).ok());
  CHECK(Iteration() == 0);
  CHECK(policy->Resume(0).ok());
  CHECK(Iteration() == 1);
  CHECK(Applied() == 2);
  CHECK(Replies(0) == 1);
  CHECK(policy->Resume(0).ok());
  CHECK(Iteration() == 1);
}

TEST_CASE_METHOD(PolicyFixture, "after Abandon nothing is counted and nobody is answered") {
  Start(2);
  CHECK(Push(0, 0, 2).ok());
  policy->Abandon();
  CHECK(absl::IsCancelled(Push(1, 0, 2)));
  CHECK(policy->Resume(0).ok());
  CHECK(absl::IsCancelled(policy->Adopt({.number = 1}).status()));
  policy->Confirm(0, 1);
  CHECK(Iteration() == 0);
  CHECK(observer.changes.empty());
  CHECK(sinks[0].use_count() == 1);
}

}  // namespace evenshard
