#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

class Fixture : protected PolicyFixture {
 public:
  void Begin(int workers, int quorum, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"update.policy=QUORUM", "update.quorum=" + std::to_string(quorum)});
    Start(workers, more);
  }
  void PushAll(int rank, uint64_t iteration, float value) {
    for (const int index : {0, 1}) REQUIRE(Push(rank, iteration, value, index).ok());
  }
  std::vector<uint32_t> Arrived() const {
    REQUIRE_FALSE(arrivals.empty());
    const auto& arrived = arrivals.back().quorum().arrived();
    return {arrived.begin(), arrived.end()};
  }
  ShardStats Stats() {
    ShardStats stats;
    for (int rank = 0; rank < config->workers(); ++rank) stats.add_worker()->set_worker(rank);
    policy->FillStats(&stats);
    return stats;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a worker has arrived when all its chunks have, and a quorum is told") {
  Begin(3, 2);
  REQUIRE(Push(0, 0, 1, 0).ok());
  PushAll(1, 0, 2);
  CHECK(arrivals.empty());
  REQUIRE(Push(0, 0, 1, 1).ok());
  CHECK(Arrived() == std::vector<uint32_t>{0, 1});
  CHECK(arrivals.back().quorum().iteration() == 0);
  CHECK(arrivals.back().quorum().training_size() == 3);
  PushAll(2, 0, 3);
  CHECK(Arrived() == std::vector<uint32_t>{0, 1, 2});
  CHECK(Applied() == 0);  // nothing is added before it is known whose gradients count
}

TEST_CASE_METHOD(Fixture, "an update is the mean of the set that was fixed, at every chunk") {
  Begin(3, 2);
  for (const int rank : {0, 1, 2}) PushAll(rank, 0, static_cast<float>(1 << rank));
  Fix(0, {0, 2});
  CHECK(Applied() == 2.5f);
  CHECK(Iteration(0) == 1);
  CHECK(Iteration(1) == 1);
  REQUIRE(observer.changes.size() == 2);
  for (const ChunkChange& change : observer.changes) {
    CHECK(std::vector<uint32_t>(change.workers.begin(), change.workers.end()) ==
          std::vector<uint32_t>{0, 2});
  }
  CHECK(Replies(0) == 2);
  CHECK(Replies(2) == 2);
  CHECK(Replies(1) == 0);
  CHECK(Dropped(1) == 2);
  CHECK(last_owner.expired());  // gradients that were dropped are not kept
}

TEST_CASE_METHOD(Fixture, "an answer in which a later gradient has counted answers nothing") {
  Begin(2, 1);
  AgreementAnswer answer;
  answer.mutable_quorum()->set_iteration(3);
  answer.mutable_quorum()->add_counted_before(4);
  CHECK_FALSE(quorum->AnsweredBy(answer).has_value());
  answer.mutable_quorum()->add_counted_before(5);
  CHECK_FALSE(quorum->AnsweredBy(answer).has_value());
  answer.mutable_quorum()->set_counted_before(1, 0);
  CHECK(quorum->AnsweredBy(answer) == 3);
}

TEST_CASE_METHOD(Fixture, "a late push is answered as dropped, and so is each repeat of it") {
  Begin(3, 2);
  for (const int rank : {0, 1}) PushAll(rank, 0, 1);
  Fix(0, {0, 1});
  PushAll(2, 0, 5);
  CHECK(Dropped(2) == 2);
  PushAll(2, 0, 5);
  CHECK(Dropped(2) == 4);
  CHECK(Replies(2) == 0);
  CHECK(Applied() == 1);
  // Many iterations later too.
  for (const uint64_t iteration : {1, 2}) {
    for (const int rank : {0, 1}) PushAll(rank, iteration, 1);
    Fix(iteration, {0, 1});
  }
  PushAll(2, 0, 5);
  CHECK(Dropped(2) == 6);
  CHECK(Stats().worker(2).dropped_iterations() == 1);
  CHECK(Stats().worker(2).counted_iterations() == 0);
  CHECK(Stats().worker(0).counted_iterations() == 3);
}

TEST_CASE_METHOD(Fixture, "a repeat of a push that counted is answered as one, however late") {
  Begin(3, 2);
  for (const int rank : {0, 1}) PushAll(rank, 0, 1);
  Fix(0, {0, 1});
  for (const uint64_t iteration : {1, 2}) {
    for (const int rank : {0, 2}) PushAll(rank, iteration, 1);
    Fix(iteration, {0, 2});
  }
  const float before = Applied();
  PushAll(1, 0, 7);
  CHECK(Replies(1) == 4);
  CHECK(Dropped(1) == 0);
  CHECK(Applied() == before);
}

TEST_CASE_METHOD(Fixture, "who was dropped is answered with the parameters after an iteration") {
  Begin(3, 2);
  for (const int rank : {0, 1}) PushAll(rank, 0, 1);
  Fix(0, {0, 1});
  REQUIRE(Onlook(2, 0).ok());
  CHECK(Replies(2) == 1);
  // An onlooker at an iteration that is not over is answered when it is, and is no arrival.
  REQUIRE(Onlook(2, 1, 0).ok());
  REQUIRE(Onlook(2, 1, 1).ok());
  CHECK(Replies(2) == 1);
  const size_t told = arrivals.size();
  PushAll(0, 1, 1);
  CHECK(arrivals.size() == told);
  PushAll(1, 1, 1);
  Fix(1, {0, 1});
  CHECK(Replies(2) == 3);
  CHECK(Dropped(2) == 0);
  PushAll(2, 2, 1);  // it goes on there
  PushAll(0, 2, 3);
  CHECK(Arrived() == std::vector<uint32_t>{0, 2});
}

TEST_CASE_METHOD(Fixture, "an answer waits until a replica has the update, dropped ones too") {
  Begin(3, 2);
  observer.keeps_replies = true;
  for (const int rank : {0, 1, 2}) PushAll(rank, 0, 1);
  Fix(0, {0, 1});
  PushAll(2, 0, 1);
  REQUIRE(Onlook(2, 0).ok());
  {
    StoredChunk& chunk = store->chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    CHECK_FALSE(policy->MayReply(0));
  }
  policy->Defer(0, {.sink = sinks[1], .iteration = 0});
  CHECK(Replies(1) == 0);
  CHECK(Dropped(2) == 0);
  policy->Confirm(0, observer.changes.size());
  CHECK(Replies(1) == 2);
  CHECK(Replies(2) == 1);
  CHECK(Dropped(2) == 2);
  policy->Confirm(1, observer.changes.size());
  CHECK(Replies(1) == 3);
  CHECK(Dropped(2) == 4);
}

TEST_CASE_METHOD(Fixture, "a worker that has left is not needed, and one that comes back is") {
  Begin(3, 2);
  policy->Join(0, 1);
  policy->Join(1, 1);
  PushAll(2, 0, 4);
  CHECK(arrivals.empty());
  policy->Leave(0, 1);
  CHECK(arrivals.empty());
  policy->Leave(1, 7);  // another incarnation's
  CHECK(arrivals.empty());
  policy->Leave(1, 1);
  CHECK(Arrived() == std::vector<uint32_t>{2});
  CHECK(arrivals.back().quorum().training_size() == 1);
  policy->Join(1, 2);
  CHECK_FALSE(quorum->report().quorum().has_iteration());
}

TEST_CASE_METHOD(Fixture, "a new primary asks for the set that it does not know, and keeps one") {
  Begin(3, 2);
  store->Learn(AgreedSet{.iteration = 0, .counted_before = {1, 1, 0}});
  // Another worker's push of this iteration cannot come, and the set's come again.
  PushAll(2, 0, 8);
  CHECK(Applied() == 0);
  for (const int rank : {0, 1}) PushAll(rank, 0, 2);
  CHECK(Applied() == 2);
  CHECK(Dropped(2) == 2);
  CHECK(quorum->report().quorum().latest().iteration() == 0);
  CHECK(arrivals.empty());
}

TEST_CASE_METHOD(Fixture, "a member of the set that leaves the worker set is not waited for") {
  Begin(3, 2);
  Adopt({{0, {0, 1, 2}}});
  store->Learn(AgreedSet{.iteration = 0, .counted_before = {1, 1, 0}});
  PushAll(0, 0, 2);
  CHECK(Applied() == 0);
  Adopt({{0, {0, 1, 2}}, {1, {0, 2}}});
  CHECK(Applied() == 2);
}

TEST_CASE_METHOD(Fixture, "pending updates name who is missing, before and after the decision") {
  Begin(3, 2);
  PushAll(0, 0, 1);
  REQUIRE(policy->PendingUpdates().size() == 2);
  CHECK(policy->PendingUpdates()[0].missing == std::vector<uint32_t>{1, 2});
  PushAll(1, 0, 1);
  PushAll(2, 0, 1);
  CHECK(policy->PendingUpdates().empty());  // the slots agree
  Fix(0, {0, 1, 2});
  CHECK(Applied() == 1);
}

TEST_CASE_METHOD(Fixture, "the mean of the set is clipped by its norm") {
  Begin(3, 2, {"update.clip_global_norm=1"});
  for (const int rank : {0, 1, 2}) PushAll(rank, 0, static_cast<float>(1 + rank));
  CHECK(parts.empty());
  Fix(0, {0, 2});
  REQUIRE(parts.size() == 1);
  CHECK(Applied() == 0);
  Agree(0, 4);
  CHECK(Applied() == Approx(0.5));
}

TEST_CASE_METHOD(Fixture, "with all workers the policy is SYNC, bit for bit") {
  Begin(3, 3, {"update.grace=0.5"});
  CHECK(config->proto().update().policy() == Update::SYNC);
  const PlannedConfig quorum_config = *config;
  PolicyFixture sync;
  sync.Start(3);
  CHECK(quorum_config.fingerprint() == sync.config->fingerprint());
}

}  // namespace evenshard
