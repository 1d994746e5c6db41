// What SSP adds to ASYNC: whose reply waits for whom. async_policy_test.cc has the rest.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

const WorkerSetList kAll = {{0, {0, 1, 2}}};

std::vector<std::string> Ssp(int staleness) {
  return {"update.policy=SSP", "update.staleness=" + std::to_string(staleness)};
}

}  // namespace

class SspFixture : public PolicyFixture {
 public:
  // Three workers, of whom none may be more than one iteration ahead.
  SspFixture() { Start(3, Ssp(1)); }

  // The ranks that the one push under way waits for.
  std::vector<uint32_t> Missing() {
    const auto pending = policy->PendingUpdates();
    return pending.size() == 1 ? pending[0].missing : std::vector<uint32_t>{99};
  }
};

TEST_CASE_METHOD(SspFixture, "SSP applies each push at once and lets nobody get too far ahead") {
  CHECK(Push(0, 0, 1).ok());
  CHECK(Replies(0) == 1);  // the others' clocks are 0, and its own is 1
  clock.Advance(absl::Seconds(3));
  CHECK(Push(0, 1, 2).ok());
  CHECK(Applied() == 3);
  CHECK(Replies(0) == 1);
  CHECK(Missing() == std::vector<uint32_t>{1, 2});
  CHECK(policy->PendingUpdates()[0].iteration == 1);
  CHECK(policy->PendingUpdates()[0].since == clock.Now());

  CHECK(Push(1, 0, 4).ok());
  CHECK(Replies(1) == 1);
  CHECK(Replies(0) == 1);
  CHECK(Missing() == std::vector<uint32_t>{2});
  CHECK(Push(2, 0, 8).ok());
  CHECK(Applied() == 15);
  CHECK(Replies(0) == 2);
  CHECK(policy->PendingUpdates().empty());
}

TEST_CASE_METHOD(SspFixture, "SSP bounds each chunk by itself") {
  for (const int rank : {1, 2}) CHECK(Push(rank, 0, 1, 0).ok());
  for (const int index : {0, 1}) CHECK(Push(0, 0, 1, index).ok());
  CHECK(Push(0, 1, 1, 0).ok());
  CHECK(Replies(0) == 3);
  CHECK(Push(0, 1, 1, 1).ok());
  CHECK(Replies(0) == 3);
  CHECK(Missing() == std::vector<uint32_t>{1, 2});
}

TEST_CASE_METHOD(PolicyFixture, "SSP with a bound that nobody reaches is ASYNC") {
  Start(3, Ssp(1000));
  for (int iteration = 0; iteration < 900; ++iteration) REQUIRE(Push(0, iteration, 1).ok());
  CHECK(Replies(0) == 900);
}

TEST_CASE_METHOD(PolicyFixture, "SSP with staleness 0 is SYNC") {
  Start(2, Ssp(0));
  CHECK(config->proto().update().policy() == Update::SYNC);
  CHECK_FALSE(config->proto().update().has_staleness());
  CHECK(Push(0, 0, 1).ok());
  CHECK(Applied() == 0);
  CHECK(Push(1, 0, 3).ok());
  CHECK(Applied() == 2);
}

TEST_CASE_METHOD(SspFixture, "SSP answers a repeat when its worker may go on") {
  CHECK(Push(0, 0, 1).ok());
  CHECK(Push(0, 1, 2).ok());
  CHECK(Push(0, 1, 2).ok());  // on the same stream
  sinks.push_back(sinks[0]);
  sinks[0] = std::make_shared<RecordingSink>();
  CHECK(Push(0, 1, 2).ok());  // on another one
  CHECK(Applied() == 3);
  CHECK(Replies(0) == 0);
  for (const int rank : {1, 2}) CHECK(Push(rank, 0, 0).ok());
  CHECK(Replies(0) == 1);
  CHECK(sinks.back()->replies.size() == 2);
  CHECK(Push(0, 1, 2).ok());  // late
  CHECK(Replies(0) == 2);
  CHECK(Applied() == 3);
}

TEST_CASE_METHOD(SspFixture, "SSP keeps a reply until what it shows is confirmed") {
  observer.keeps_replies = true;
  CHECK(Push(0, 0, 1).ok());
  policy->Confirm(0, 1);
  CHECK(Push(0, 1, 1).ok());
  policy->Confirm(0, 2);
  CHECK(Push(1, 0, 1).ok());
  CHECK(Push(2, 0, 1).ok());  // change 4, which the reply to worker 0 shows
  policy->Confirm(0, 3);
  CHECK(Replies(0) == 1);
  policy->Confirm(0, 4);
  CHECK(Replies(0) == 2);
}

TEST_CASE_METHOD(SspFixture, "SSP waits for no worker that has left, until it joins again") {
  for (uint32_t rank = 0; rank < 3; ++rank) CHECK(policy->Join(rank, 10 + rank).iteration == 0);
  CHECK(Push(0, 0, 1).ok());
  CHECK(Push(1, 0, 1).ok());
  CHECK(Push(0, 1, 1).ok());
  CHECK(Replies(0) == 1);
  CHECK(Missing() == std::vector<uint32_t>{2});
  policy->Leave(2, 99);  // an earlier process of the rank
  CHECK(Replies(0) == 1);
  policy->Leave(2, 12);
  CHECK(Replies(0) == 2);
  for (const int iteration : {1, 2, 3, 4}) {
    CHECK(Push(1, iteration, 1).ok());
    CHECK(Push(0, iteration + 1, 1).ok());
  }
  CHECK(Replies(0) == 6);  // its clock is 6, and that of worker 1 is 5

  // It begins where the slower one is, and counts from now on.
  CHECK(policy->Join(2, 13).iteration == 5);
  CHECK(Push(1, 5, 1).ok());
  CHECK(Push(1, 6, 1).ok());
  CHECK(Push(0, 6, 1).ok());
  CHECK(Replies(0) == 6);
  CHECK(Push(2, 5, 1).ok());
  CHECK(Replies(2) == 1);
  CHECK(Replies(0) == 7);
}

TEST_CASE_METHOD(SspFixture, "SSP has a worker go on with its push that was thought lost") {
  for (uint32_t rank = 0; rank < 3; ++rank) policy->Join(rank, 10 + rank);
  CHECK(Push(2, 0, 1).ok());
  policy->Leave(2, 12);
  for (const int iteration : {0, 1, 2}) {
    for (const int rank : {0, 1}) CHECK(Push(rank, iteration, 1).ok());
  }
  CHECK(Applied() == 7);
  CHECK(policy->Join(2, 12).iteration == 1);
  CHECK(Push(2, 1, 1).ok());
  CHECK(Applied() == 8);
}

TEST_CASE_METHOD(SspFixture, "SSP waits for a restarted worker that nobody had given up") {
  for (uint32_t rank = 0; rank < 3; ++rank) policy->Join(rank, 10 + rank);
  CHECK(Push(2, 0, 1, 0).ok());  // and dies before it pushes chunk 1
  for (const int index : {0, 1}) {
    for (const int iteration : {0, 1}) CHECK(Push(0, iteration, 1, index).ok());
    CHECK(Push(1, 0, 1, index).ok());
  }
  CHECK(Replies(0) == 3);
  CHECK(policy->Join(2, 20).iteration == 1);
  CHECK(Replies(0) == 3);
  // As one that joins catches up, so that its clock is the same at all chunks.
  for (const int index : {0, 1}) CHECK(Push(2, 0, 0, index, /*skip=*/true).ok());
  CHECK(Replies(0) == 4);
}

TEST_CASE_METHOD(SspFixture, "SSP goes by the view for who has left") {
  Adopt(kAll);
  CHECK(Push(0, 0, 1).ok());
  CHECK(Push(0, 1, 1).ok());
  CHECK(Push(1, 0, 1).ok());
  CHECK(Replies(0) == 1);
  Adopt(kAll, {.left = {2}});
  CHECK(Replies(0) == 2);
  // Its replacement is a member before it has joined this shard.
  Adopt(kAll);
  CHECK(Push(0, 2, 1).ok());
  CHECK(Missing() == std::vector<uint32_t>{1});
  CHECK(policy->Join(2, 30).iteration == 1);
}

TEST_CASE_METHOD(SspFixture, "SSP drops what waits when the run has failed") {
  CHECK(Push(0, 0, 1).ok());
  CHECK(Push(0, 1, 1).ok());
  policy->Abandon();
  CHECK(policy->PendingUpdates().empty());
  policy->Leave(1, 0);
  CHECK(Replies(0) == 1);
}

}  // namespace evenshard
