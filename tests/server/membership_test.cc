#include "server/membership.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "tests/testing/fake_clock.h"

namespace ps {
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
  FakeClock clock;
  Membership membership{3, absl::Seconds(30), &clock};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a rank beyond the workers is refused with the allowed ones") {
  const absl::Status status = membership.Join(3, kFirst, "a");
  CHECK(absl::IsOutOfRange(status));
  CHECK(Message(status) == "there is no worker 3: the config has 3 workers, ranks 0 to 2");
}

TEST_CASE_METHOD(Fixture, "incarnation 0 is refused") {
  CHECK(absl::IsInvalidArgument(membership.Join(0, 0, "a")));
}

TEST_CASE_METHOD(Fixture, "a rank in use is refused, naming who has it") {
  REQUIRE(membership.Join(1, kFirst, "ipv4:10.0.0.1:7").ok());
  REQUIRE(membership.StreamOpened(1, kFirst).ok());
  clock.Advance(absl::Seconds(100));
  const absl::Status status = membership.Join(1, kSecond, "b");
  CHECK(absl::IsAlreadyExists(status));
  CHECK_THAT(Message(status), Catch::Contains("worker 1 (ipv4:10.0.0.1:7, joined"));
  CHECK_THAT(Message(status), Catch::Contains("last seen 1m40s ago"));
  CHECK(membership.Join(1, kFirst, "ipv4:10.0.0.1:7").ok());  // itself, again
}

TEST_CASE_METHOD(Fixture, "a rank that joined but never opened a stream becomes free again") {
  REQUIRE(membership.Join(1, kFirst, "a").ok());
  clock.Advance(absl::Seconds(30));
  CHECK(absl::IsAlreadyExists(membership.Join(1, kSecond, "b")));
  clock.Advance(absl::Seconds(1));
  CHECK(membership.Join(1, kSecond, "b").ok());
  CHECK(absl::IsFailedPrecondition(membership.StreamOpened(1, kFirst).status()));
}

TEST_CASE_METHOD(Fixture, "only the holder of a rank opens streams and leaves") {
  CHECK(absl::IsFailedPrecondition(membership.StreamOpened(0, kFirst).status()));
  CHECK(absl::IsFailedPrecondition(membership.StreamOpened(9, kFirst).status()));
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  CHECK(absl::IsFailedPrecondition(membership.Leave(0, kSecond, false).status()));
  CHECK_FALSE(membership.HasLeft(0));
  const absl::StatusOr<bool> took_part = membership.Leave(0, kFirst, false);
  REQUIRE(took_part.ok());
  CHECK_FALSE(*took_part);
  CHECK(membership.HasLeft(0));
  CHECK(absl::IsFailedPrecondition(membership.Leave(0, kFirst, false).status()));
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LEFT);
}

TEST_CASE_METHOD(Fixture, "the streams of an incarnation are bounded") {
  REQUIRE(membership.Join(0, 7, "a").ok());
  for (int i = 0; i < Membership::kMaxStreams; ++i) REQUIRE(membership.StreamOpened(0, 7).ok());
  const absl::Status refused = membership.StreamOpened(0, 7).status();
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(refused.message() == "worker 0 has 64 Exchange streams open, the most");
  CHECK_FALSE(membership.StreamClosed(0, 7));
  CHECK(membership.StreamOpened(0, 7).ok());
}

TEST_CASE_METHOD(Fixture, "a worker is lost when its last stream ends before it left") {
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  REQUIRE(membership.StreamOpened(0, kFirst).ok());
  REQUIRE(membership.StreamOpened(0, kFirst).ok());
  CHECK_FALSE(membership.StreamClosed(0, kFirst));
  CHECK(membership.StreamClosed(0, kFirst));
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LOST);
  CHECK(membership.Join(0, kSecond, "a").ok());  // restarted
}

TEST_CASE_METHOD(Fixture, "a worker that left is not lost by its stream's end") {
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  REQUIRE(membership.StreamOpened(0, kFirst).ok());
  REQUIRE(membership.Leave(0, kFirst, false).ok());
  CHECK_FALSE(membership.StreamClosed(0, kFirst));
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LEFT);
}

TEST_CASE_METHOD(Fixture, "the end of an old incarnation's stream does not harm the new one") {
  REQUIRE(membership.Join(0, kFirst, "a").ok());
  REQUIRE(membership.StreamOpened(0, kFirst).ok());
  REQUIRE(membership.Leave(0, kFirst, true).ok());
  CHECK(StatsOf(membership, 0).state() == WorkerStats::LOST);
  REQUIRE(membership.Join(0, kSecond, "a").ok());
  REQUIRE(membership.StreamOpened(0, kSecond).ok());
  CHECK_FALSE(membership.StreamClosed(0, kFirst));
  CHECK(StatsOf(membership, 0).state() == WorkerStats::JOINED);
}

TEST_CASE_METHOD(Fixture, "traffic is counted by worker") {
  REQUIRE(membership.Join(2, kFirst, "somewhere").ok());
  CHECK(membership.NextIteration(2) == 0);
  membership.CountPush(2, 4, 100);
  membership.CountPush(2, 5, 10);
  membership.CountReply(2, 7);
  clock.Advance(absl::Seconds(3));
  const WorkerStats stats = StatsOf(membership, 2);
  CHECK(stats.address() == "somewhere");
  CHECK(stats.iteration() == 5);
  CHECK(stats.pushes() == 2);
  CHECK(stats.bytes_in() == 110);
  CHECK(stats.bytes_out() == 7);
  CHECK(stats.last_seen_seconds_ago() == 3);
  CHECK(membership.NextIteration(2) == 6);
  CHECK(membership.Describe(2) == "worker 2 (somewhere, joined, last seen 3s ago at iteration 5)");
  CHECK(membership.Describe(1) == "worker 1 (never joined)");
  CHECK(StatsOf(membership, 1).state() == WorkerStats::NEVER_JOINED);
}

TEST_CASE_METHOD(Fixture, "of a worker's usage the latest report is kept, with its age") {
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

TEST_CASE_METHOD(Fixture, "usage is taken only of the incarnation that holds the rank") {
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
  auto opened = membership.StreamOpened(0, kFirst);
  REQUIRE(opened.ok());
  CHECK(*opened == first.lock());
  REQUIRE(membership.StreamOpened(0, kFirst).ok());
  *opened = nullptr;
  CHECK(!membership.StreamClosed(0, kFirst));
  CHECK(!first.expired());
  CHECK(membership.StreamClosed(0, kFirst));
  CHECK(first.expired());

  // Of one that leaves without having opened a stream.
  const std::weak_ptr<WorkerBuffers> second = join(kSecond);
  CHECK(!second.expired());
  REQUIRE(membership.Leave(0, kSecond, /*failed=*/true).ok());
  CHECK(second.expired());

  REQUIRE(membership.Join(0, kFirst, "a").ok());
  CHECK(!StatsOf(membership, 0).shared_memory());
  CHECK(*membership.StreamOpened(0, kFirst) == nullptr);
}

}  // namespace ps
