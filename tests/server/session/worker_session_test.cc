#include "server/session/worker_session.h"

#include <catch2/catch.hpp>

#include "proto/admin.pb.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

struct Fixture {
  WorkerStats Received() const {
    WorkerStats stats;
    activity.received.Fill(&stats);
    return stats;
  }

  FakeClock clock;
  WorkerActivity activity;
  WorkerSession session{/*rank=*/2, /*incarnation=*/77, /*buffers=*/nullptr, &activity, &clock};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a session holds its rank from its start until its end") {
  CHECK(session.rank() == 2);
  CHECK(session.incarnation() == 77);
  CHECK(session.holds_rank());
  session.End();
  session.End();
  CHECK_FALSE(session.holds_rank());
}

TEST_CASE_METHOD(Fixture, "iterations are those of the latest push, in whatever order they come") {
  CHECK(activity.iterations == 0);
  session.CountPush(PushOutcome::kCounted, 5, 0);
  CHECK(activity.iterations == 5);
  session.CountPush(PushOutcome::kCounted, 3, 0);  // of another chunk
  CHECK(activity.iterations == 5);
  session.CountPush(PushOutcome::kSkipped, 6, 0);
  CHECK(activity.iterations == 6);
}

TEST_CASE_METHOD(Fixture, "a push is a sign of life, a reply is not") {
  session.CountPush(PushOutcome::kCounted, 0, 0);
  const int64_t pushed = absl::ToUnixNanos(clock.Now());
  CHECK(activity.last_seen == pushed);
  clock.Advance(absl::Seconds(1));
  session.CountReply(0);
  CHECK(activity.last_seen == pushed);
}

TEST_CASE_METHOD(Fixture, "the traffic of a rank adds up over its sessions") {
  session.CountPush(PushOutcome::kCounted, 0, 100);
  session.CountReply(10);
  session.End();
  WorkerSession next(2, 78, nullptr, &activity, &clock);
  next.CountPush(PushOutcome::kRepeated, 0, 100);
  next.CountReply(10);
  CHECK(Received().pushes() == 1);
  CHECK(Received().repeated_pushes() == 1);
  CHECK(Received().bytes_in() == 200);
  CHECK(activity.bytes_out == 20);
}

}  // namespace evenshard
