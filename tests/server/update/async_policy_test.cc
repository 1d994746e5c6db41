// What ASYNC does under views, and with an observer. update_policy_test.cc has the rest.

#include <catch2/catch.hpp>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

const WorkerSetList kAll = {{0, {0, 1}}};

}  // namespace

class AsyncFixture : public PolicyFixture {
 public:
  AsyncFixture() { Start(2, {"update.policy=ASYNC"}); }
};

TEST_CASE_METHOD(AsyncFixture, "ASYNC drops a push of an older view and refuses a newer one") {
  Adopt(kAll);
  view = 0;
  CHECK(Push(0, 0, 4).ok());
  CHECK(Replies(0) == 0);
  view = 2;
  CHECK(absl::IsUnavailable(Push(0, 0, 4)));
  CHECK(observer.changes.empty());
  view = 1;
  CHECK(Push(0, 0, 2).ok());
  CHECK(Applied() == 2);
  CHECK(Replies(0) == 1);
}

TEST_CASE_METHOD(AsyncFixture, "ASYNC hands a slot over without taking pushes") {
  Adopt(kAll, {.handing_over = true});
  CHECK(Push(0, 0, 4).ok());
  CHECK(Replies(0) == 0);
  CHECK(Applied() == 0);
  Adopt(kAll);
  CHECK(Push(0, 0, 4).ok());
  CHECK(Applied() == 4);
}

TEST_CASE_METHOD(PolicyFixture,
                 "ASYNC has a worker try again that saw initial parameters which were lost") {
  from_workers = true;
  Start(2, {"update.policy=ASYNC"});
  // Without views nobody can have seen them.
  CHECK(absl::IsFailedPrecondition(Push(1, 1, 4)));
  Adopt(kAll);
  CHECK(absl::IsUnavailable(Push(1, 1, 4)));
  CHECK(observer.changes.empty());
  CHECK(Push(0, 0, 8).ok());  // repeated, since nobody has answered it
  CHECK(Push(1, 1, 4).ok());
  CHECK(Parameter(0) == 4);
}

TEST_CASE_METHOD(AsyncFixture, "ASYNC counts no push of a session that has ended") {
  sessions[0]->End();
  CHECK(absl::IsFailedPrecondition(Push(0, 0, 4)));
  CHECK(observer.changes.empty());
}

TEST_CASE_METHOD(AsyncFixture, "ASYNC keeps each reply until its change is confirmed") {
  observer.keeps_replies = true;
  CHECK(Push(0, 0, 1).ok());
  CHECK(Push(1, 0, 2).ok());
  CHECK(Applied() == 3);
  CHECK(Push(0, 0, 1).ok());  // repeated: waits for the newest change
  policy->Confirm(0, 1);
  CHECK(Replies(0) == 1);
  CHECK(Replies(1) == 0);
  policy->Confirm(0, 2);
  CHECK(Replies(0) == 2);
  CHECK(Replies(1) == 1);
  CHECK(Push(0, 0, 1).ok());
  CHECK(Replies(0) == 3);
}

TEST_CASE_METHOD(AsyncFixture, "ASYNC tells the observer whose gradient it was, as received") {
  CHECK(Push(1, 3, 5).ok());
  CHECK(Push(1, 4, 0, 0, /*skip=*/true).ok());
  REQUIRE(observer.changes.size() == 2);
  CHECK(observer.changes[0].workers == ChunkChange::Workers{1});
  CHECK(observer.changes[0].rate.iteration == 3);
  CHECK(observer.changes[0].scale == 1);
  CHECK(SegmentsSize(observer.changes[0].gradient) == 64);
  CHECK(observer.changes[0].owner != nullptr);
  CHECK(observer.changes[1].gradient.empty());
  CHECK(policy->Join(1, 1).iteration == 5);
  CHECK(policy->Join(0, 1).iteration == 0);
}

TEST_CASE_METHOD(AsyncFixture, "ASYNC drops what waits when it is abandoned") {
  observer.keeps_replies = true;
  CHECK(Push(0, 0, 1).ok());
  policy->Abandon();
  CHECK(absl::IsCancelled(Push(0, 1, 1)));
  policy->Confirm(0, 1);
  CHECK(Replies(0) == 0);
  CHECK(sinks[0].use_count() == 1);
}

}  // namespace evenshard
