#include "server/session/membership.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

constexpr uint64_t kFirst = 101;  // incarnations
constexpr uint64_t kSecond = 202;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

WorkerStats StatsOf(const Membership& membership, int rank) {
  ShardStats stats;
  membership.Fill(&stats);
  return stats.worker(rank);
}

struct Fixture {
  std::shared_ptr<WorkerSession> Open(int rank, uint64_t incarnation) {
    const auto session = membership.StreamOpened(rank, incarnation);
    REQUIRE(session.ok());
    return *session;
  }

  FakeClock clock;
  Membership membership{3, /*reconnect=*/absl::ZeroDuration(), &clock};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a rank beyond the workers is refused with the allowed ones") {
  const absl::Status status = membership.Join(3, kFirst, "a").status();
  CHECK(absl::IsOutOfRange(status));
  CHECK(Message(status) == "there is no worker 3: the config has 3 workers, ranks 0 to 2");
}

TEST_CASE_METHOD(Fixture, "incarnation 0 is refused") {
  CHECK(absl::IsInvalidArgument(membership.Join(0, 0, "a").status()));
}

TEST_CASE_METHOD(Fixture, "a rank in use is refused, naming who has it") {
  REQUIRE(membership.Join(1, kFirst, "ipv4:10.0.0.1:7").ok());
  REQUIRE(membership.StreamOpened(1, kFirst).ok());
  clock.Advance(absl::Seconds(100));
  const absl::Status status = membership.Join(1, kSecond, "b").status();
  CHECK(absl::IsAlreadyExists(status));
  CHECK_THAT(Message(status), Catch::Contains("worker 1 (ipv4:10.0.0.1:7, joined"));
  CHECK_THAT(Message(status), Catch::Contains("last seen 1m40s ago"));
  CHECK(membership.Join(1, kFirst, "ipv4:10.0.0.1:7").ok());  // the same worker again
}

TEST_CASE_METHOD(Fixture, "a rank that joined but never opened a stream becomes free again") {
  REQUIRE(membership.Join(1, kFirst, "a").ok());
  clock.Advance(Membership::kStreamGrace - absl::Seconds(2));
  CHECK(membership.LoseWithoutStream().empty());
  const absl::Status taken = membership.Join(1, kSecond, "b").status();
  CHECK(absl::IsUnavailable(taken));  // it passes by itself
  CHECK_THAT(Message(taken), Catch::Contains("has no stream; it is free in 2s at the latest"));
  clock.Advance(absl::Seconds(2));
  SECTION("for another incarnation") { CHECK(membership.Join(1, kSecond, "b").ok()); }
  SECTION("and its worker counts as lost") {
    const auto lost = membership.LoseWithoutStream();
    REQUIRE(lost.size() == 1);
    CHECK(lost[0].rank == 1);
    CHECK(membership.LoseWithoutStream().empty());
    CHECK(StatsOf(membership, 1).state() == WorkerStats::LOST);
  }
  CHECK(absl::IsFailedPrecondition(membership.StreamOpened(1, kFirst).status()));
}

TEST_CASE_METHOD(Fixture, "a worker that has a stream keeps its rank, however long it is silent") {
  REQUIRE(membership.Join(1, kFirst, "a").ok());
  Open(1, kFirst);
  clock.Advance(absl::Hours(1));
  CHECK(membership.LoseWithoutStream().empty());
  CHECK(absl::IsAlreadyExists(membership.Join(1, kSecond, "b").status()));
}

TEST_CASE_METHOD(Fixture, "a Join that is repeated keeps the session that has a stream") {
  const auto first = membership.Join(1, kFirst, "a");
  const auto again = membership.Join(1, kFirst, "a");  // its answer was lost
  REQUIRE(again.ok());
  CHECK_FALSE((*first)->holds_rank());
  CHECK(Open(1, kFirst) == *again);
  CHECK(*membership.Join(1, kFirst, "a") == *again);
  CHECK((*again)->holds_rank());
}

TEST_CASE_METHOD(Fixture, "a session holds its rank until it ends") {
  const auto joined = [&](uint64_t incarnation) {
    const auto session = membership.Join(0, incarnation, "a");
    REQUIRE(session.ok());
    Open(0, incarnation);
    CHECK((*session)->holds_rank());
    return *session;
  };
  const auto left = joined(kFirst);
  REQUIRE(membership.Leave(0, kFirst, /*failed=*/false).ok());
  CHECK_FALSE(left->holds_rank());
  const auto lost = joined(kSecond);
  CHECK(membership.StreamClosed(lost.get()) == Membership::AfterStream::kLost);
  CHECK_FALSE(lost->holds_rank());
  CHECK(joined(kFirst) != left);
  CHECK_FALSE(left->holds_rank());  // for good, though the incarnation is the same
}

TEST_CASE_METHOD(Fixture, "only the holder of a rank opens streams and leaves") {
  CHECK(absl::IsFailedPrecondition(membership.StreamOpened(0, kFirst).status()));
  CHECK(absl::IsFailedPrecondition(membership.StreamOpened(9, kFirst).status()));
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  CHECK(absl::IsFailedPrecondition(membership.Leave(0, kSecond, false).status()));
  CHECK(membership.HaveLeft().empty());
  const absl::StatusOr<bool> took_part = membership.Leave(0, kFirst, false);
  REQUIRE(took_part.ok());
  CHECK_FALSE(*took_part);
  CHECK(membership.HaveLeft() == std::vector<uint32_t>{0});
  CHECK(absl::IsFailedPrecondition(membership.Leave(0, kFirst, false).status()));
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LEFT);
}

TEST_CASE_METHOD(Fixture, "the streams of an incarnation are bounded") {
  REQUIRE(membership.Join(0, 7, "a").ok());
  std::shared_ptr<WorkerSession> session;
  for (int i = 0; i < Membership::kMaxStreams; ++i) session = Open(0, 7);
  const absl::Status refused = membership.StreamOpened(0, 7).status();
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(refused.message() == "worker 0 has 128 Exchange streams open, the most");
  CHECK(membership.StreamClosed(session.get()) == Membership::AfterStream::kGoesOn);
  CHECK(membership.StreamOpened(0, 7).ok());
}

TEST_CASE_METHOD(Fixture, "a worker is lost when its last stream ends before it has left") {
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  const auto session = Open(0, kFirst);
  Open(0, kFirst);
  CHECK(membership.StreamClosed(session.get()) == Membership::AfterStream::kGoesOn);
  CHECK(membership.StreamClosed(session.get()) == Membership::AfterStream::kLost);
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LOST);
  CHECK(membership.Join(0, kSecond, "a").ok());  // restarted
}

TEST_CASE_METHOD(Fixture, "a worker that has left is not lost when its stream ends") {
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  const auto session = Open(0, kFirst);
  REQUIRE(membership.Leave(0, kFirst, false).ok());
  CHECK(membership.StreamClosed(session.get()) == Membership::AfterStream::kGoesOn);
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LEFT);
}

TEST_CASE_METHOD(Fixture, "the end of an old incarnation's stream does not harm the new one") {
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  const auto session = Open(0, kFirst);
  REQUIRE(membership.Leave(0, kFirst, true).ok());
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LOST);
  REQUIRE(membership.Join(0, kSecond, "a").ok());
  Open(0, kSecond);
  CHECK(membership.StreamClosed(session.get()) == Membership::AfterStream::kGoesOn);
  CHECK(StatsOf(membership, 0).state() == WorkerStats::JOINED);
}

TEST_CASE("a worker whose connections ended may come back for a while") {
  FakeClock clock;
  Membership membership{3, /*reconnect=*/absl::Seconds(30), &clock};
  using AfterStream = Membership::AfterStream;
  const auto session = membership.Join(1, kFirst, "a");
  REQUIRE(session.ok());
  for (int i = 0; i < 2; ++i) REQUIRE(membership.StreamOpened(1, kFirst).ok());
  CHECK(membership.StreamClosed(session->get()) == AfterStream::kGoesOn);
  CHECK(membership.StreamClosed(session->get()) == AfterStream::kMayComeBack);
  clock.Advance(absl::Seconds(29));
  CHECK(membership.LoseWithoutStream().empty());
  const absl::Status other = membership.Join(1, kSecond, "b").status();
  CHECK(absl::IsUnavailable(other));
  CHECK_THAT(Message(other), Catch::Contains("it is free in 1s"));
  // It comes back with a session of its own, and the grace begins anew.
  const auto back = membership.Join(1, kFirst, "a");
  REQUIRE(back.ok());
  CHECK(*back != *session);
  CHECK_FALSE((*session)->holds_rank());
  REQUIRE(membership.StreamOpened(1, kFirst).ok());
  CHECK(membership.StreamClosed(session->get()) == AfterStream::kGoesOn);
  CHECK(membership.StreamClosed(back->get()) == AfterStream::kMayComeBack);
  clock.Advance(absl::Seconds(30));
  const auto lost = membership.LoseWithoutStream();
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].rank == 1);
  CHECK_THAT(lost[0].how, Catch::Contains("30s (limits.reconnect_seconds)"));
  CHECK_FALSE((*back)->holds_rank());
  CHECK(membership.Join(1, kSecond, "b").ok());
}

TEST_CASE_METHOD(Fixture, "a Leave that comes after a later view's Join ends nothing") {
  const auto session = membership.Join(1, kFirst, "a", nullptr, /*view=*/2);
  REQUIRE(session.ok());
  const auto open = GENERATE(false, true);
  if (open) Open(1, kFirst);  // then the next Join keeps the session
  const auto next = membership.Join(1, kFirst, "a", nullptr, /*view=*/3);
  REQUIRE(next.ok());
  const absl::Status late = membership.Leave(1, kFirst, /*failed=*/false, /*view=*/2).status();
  CHECK(absl::IsFailedPrecondition(late));
  CHECK(late.message() == "worker 1 has joined in view 3, after its Leave in view 2");
  CHECK((*next)->holds_rank());
  CHECK(membership.Leave(1, kFirst, /*failed=*/false, /*view=*/3).ok());
  CHECK_FALSE((*next)->holds_rank());
}

TEST_CASE_METHOD(Fixture, "a view may give a rank to another start, and take it from one") {
  const auto first = membership.Join(1, kFirst, "a");
  REQUIRE(first.ok());
  Open(1, kFirst);
  membership.EndOthers(1, kFirst);
  CHECK((*first)->holds_rank());
  CHECK(absl::IsAlreadyExists(membership.Join(1, kSecond, "b").status()));
  const auto second = membership.Join(1, kSecond, "b", nullptr, /*view=*/2);
  REQUIRE(second.ok());
  CHECK_FALSE((*first)->holds_rank());
  Open(1, kSecond);
  membership.EndOthers(1, 0);
  CHECK_FALSE((*second)->holds_rank());
  CHECK(StatsOf(membership, 1).state() == WorkerStats::LOST);
  CHECK(membership.StreamClosed(second->get()) == Membership::AfterStream::kGoesOn);
}

TEST_CASE_METHOD(Fixture, "traffic is counted by worker") {
  const auto session = membership.Join(2, kFirst, "somewhere");
  REQUIRE(session.ok());
  (*session)->CountPush(PushOutcome::kCounted, 5, 100);
  (*session)->CountPush(PushOutcome::kCounted, 6, 10);
  (*session)->CountPush(PushOutcome::kRepeated, 0, 1);
  (*session)->CountPush(PushOutcome::kSkipped, 6, 0);
  (*session)->CountReply(7);
  clock.Advance(absl::Seconds(3));
  const WorkerStats stats = StatsOf(membership, 2);
  CHECK(stats.address() == "somewhere");
  CHECK(stats.iteration() == 6);
  CHECK(stats.pushes() == 2);
  CHECK(stats.repeated_pushes() == 1);
  CHECK(stats.skipped_pushes() == 1);
  CHECK(stats.bytes_in() == 111);
  CHECK(stats.bytes_out() == 7);
  CHECK(stats.last_seen_seconds_ago() == 3);
  CHECK(membership.Describe(2) == "worker 2 (somewhere, joined, last seen 3s ago at iteration 5)");
  CHECK(membership.Describe(1) == "worker 1 (never joined)");
  CHECK(StatsOf(membership, 1).state() == WorkerStats::NEVER_JOINED);
}

TEST_CASE_METHOD(Fixture, "whom a rank's worker waits for is told why that one was refused") {
  membership.Refused(1, absl::FailedPreconditionError("another model"));
  clock.Advance(absl::Seconds(3));
  CHECK(membership.Describe(1) == "worker 1 (never joined; refused 3s ago: another model)");
  membership.Refused(1, absl::FailedPreconditionError(std::string(1000, 'x')));
  clock.Advance(absl::Seconds(1));
  CHECK(membership.Describe(1) ==
        "worker 1 (never joined; refused 1s ago: " + std::string(300, 'x') + "...)");
  membership.Refused(99, absl::FailedPreconditionError("no such rank"));

  const auto session = membership.Join(1, kFirst, "a");
  REQUIRE(session.ok());
  clock.Advance(absl::Seconds(1));
  CHECK(membership.Describe(1) == "worker 1 (a, joined, last seen 1s ago)");
  REQUIRE(membership.Leave(1, kFirst, true).ok());
  membership.Refused(1, absl::FailedPreconditionError("another config"));
  clock.Advance(absl::Seconds(2));
  CHECK(membership.Describe(1) ==
        "worker 1 (a, lost, last seen 2s ago; refused 2s ago: another config)");
}

TEST_CASE_METHOD(Fixture, "the latest report of a worker's usage is kept, with its age") {
  WorkerUsage usage;
  usage.set_resident_bytes(1000);
  REQUIRE(membership.Join(1, kFirst, "a").ok());
  CHECK_FALSE(StatsOf(membership, 1).has_usage());
  CHECK_FALSE(StatsOf(membership, 1).has_usage_seconds_ago());
  REQUIRE(membership.Report(1, kFirst, usage).ok());
  clock.Advance(absl::Seconds(2));
  CHECK(StatsOf(membership, 1).usage().resident_bytes() == 1000);
  CHECK(StatsOf(membership, 1).usage_seconds_ago() == 2);
  usage.set_resident_bytes(3000);
  REQUIRE(membership.Report(1, kFirst, usage).ok());
  CHECK(StatsOf(membership, 1).usage().resident_bytes() == 3000);
  CHECK(StatsOf(membership, 1).usage_seconds_ago() == 0);
  // A worker that hangs goes on reporting.
  CHECK(StatsOf(membership, 1).last_seen_seconds_ago() == 2);
  CHECK_FALSE(StatsOf(membership, 0).has_usage());

  // It is kept when the worker leaves, and not taken for a restarted worker's.
  REQUIRE(membership.Leave(1, kFirst, false).ok());
  CHECK(StatsOf(membership, 1).usage().resident_bytes() == 3000);
  REQUIRE(membership.Join(1, kSecond, "b").ok());
  CHECK_FALSE(StatsOf(membership, 1).has_usage());
}

TEST_CASE_METHOD(Fixture, "usage is taken only from the incarnation that holds the rank") {
  const WorkerUsage usage;
  const auto refused = [&](uint32_t rank, uint64_t incarnation) {
    const absl::Status status = membership.Report(rank, incarnation, usage);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(Message(status) ==
          "worker " + std::to_string(rank) + " has not joined with this incarnation");
  };
  refused(0, kFirst);
  refused(3, kFirst);
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  refused(0, kSecond);
  REQUIRE(membership.Leave(0, kFirst, false).ok());
  refused(0, kFirst);
  CHECK_FALSE(StatsOf(membership, 0).has_usage());
}

TEST_CASE_METHOD(Fixture, "a worker's buffers are held as long as a stream may use them") {
  const auto join = [&](uint64_t incarnation) {
    auto buffers = std::make_shared<WorkerBuffers>();
    const std::weak_ptr<WorkerBuffers> held = buffers;
    REQUIRE(membership.Join(0, incarnation, "a", std::move(buffers)).ok());
    return held;
  };
  const std::weak_ptr<WorkerBuffers> first = join(kFirst);
  CHECK(StatsOf(membership, 0).shared_memory());
  auto session = Open(0, kFirst);
  CHECK(session->buffers() == first.lock());
  CHECK(membership.StreamClosed(session.get()) == Membership::AfterStream::kLost);
  CHECK(!first.expired());  // the stream's end is still to come
  session = nullptr;
  CHECK(first.expired());

  // The buffers of a worker that leaves without having opened a stream.
  const std::weak_ptr<WorkerBuffers> second = join(kSecond);
  CHECK(!second.expired());
  REQUIRE(membership.Leave(0, kSecond, /*failed=*/true).ok());
  CHECK(second.expired());

  REQUIRE(membership.Join(0, kFirst, "a").ok());
  CHECK(!StatsOf(membership, 0).shared_memory());
  CHECK(Open(0, kFirst)->buffers() == nullptr);
}

}  // namespace evenshard
