// Who takes part in the run of a shard: how workers join, leave and are lost, and for whom updates
// wait.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/testing/captured_log.h"

namespace evenshard {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A clock that stands still and, once armed, keeps the next thread that asks for the time.
class PausingClock final : public Clock {
 public:
  absl::Time Now() const override {
    if (armed.exchange(false)) {
      paused.Notify();
      resumed.WaitForNotification();
    }
    return absl::UnixEpoch();
  }
  bool SleepUntil(absl::Time, const std::stop_token&) const override { return true; }

  mutable std::atomic<bool> armed{false};
  mutable absl::Notification paused;
  absl::Notification resumed;
};

}  // namespace

TEST_CASE_METHOD(ShardFixture, "a worker with another config is told the fields that differ") {
  Start(2);
  ShardFixture other;
  other.Start(2, {"optimizer.learning_rate=0.5"});
  JoinRequest request = other.RequestFor(0, 77);
  *request.mutable_config() = other.config->Contract();
  const absl::Status status = shard->Join(request, "test").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(Message(status), Contains("has another config than shard 0"));
  CHECK_THAT(Message(status), Contains("optimizer.learning_rate: 1 -> 0.5"));

  request.clear_config();
  CHECK_THAT(Message(shard->Join(request, "test").status()), Contains("same config file"));
}

TEST_CASE_METHOD(ShardFixture, "a worker with another plan is refused") {
  Start(1);
  JoinRequest request = RequestFor(0, 77);
  request.set_plan_fingerprint(1);
  CHECK_THAT(Message(shard->Join(request, "test").status()), Contains("has another plan"));
}

TEST_CASE_METHOD(ShardFixture, "a worker of another version is told both, before all else") {
  Start(1);
  JoinRequest request = RequestFor(0, 77);
  request.set_config_fingerprint(1);
  request.set_plan_version(kPlanVersion + 1);
  absl::Status status = shard->Join(request, "test").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Message(status) ==
        "worker 0 makes plans of version 3, shard 0 those of version 2; run the same build "
        "everywhere");
  request.set_protocol_version(kProtocolVersion + 1);
  status = shard->Join(request, "test").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Message(status) ==
        "worker 0 sends messages of version 6, shard 0 those of version 5; run the same build "
        "everywhere");
  // A client of version 1 knows nothing of versions.
  request.clear_plan_version();
  request.set_protocol_version(kProtocolVersion);
  status = shard->Join(request, "test").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(Message(status), Contains("worker 0 makes plans of version 1, shard 0 those of"));
  request.clear_protocol_version();
  CHECK_THAT(Message(shard->Join(request, "test").status()),
             Contains("worker 0 sends messages of version 1, shard 0 those of"));
}

TEST_CASE_METHOD(ShardFixture, "a worker that does not speak the run's encodings is refused") {
  Start(1, {"exchange={gradient_encoding: BFLOAT16 parameter_encoding: FLOAT16}"});
  JoinRequest request = RequestFor(0, 77);
  request.set_incarnation(Incarnation(0));
  request.clear_encodings();
  // A client that knows nothing of encodings.
  absl::Status status = shard->Join(request, "test").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Message(status) ==
        "worker 0 does not speak BFLOAT16, which is the run's exchange.gradient_encoding, but "
        "FLOAT32");
  request.add_encodings(BFLOAT16);
  request.add_encodings(static_cast<Encoding>(17));  // of a later version
  status = shard->Join(request, "test").status();
  CHECK_THAT(Message(status), Contains("does not speak FLOAT16, which is the run's "
                                       "exchange.parameter_encoding, but FLOAT32, BFLOAT16"));
  request.add_encodings(FLOAT16);
  CHECK(shard->Join(request, "test").ok());

  ShardFixture full_width;  // needs nothing but what everybody speaks
  full_width.Start(1);
  request = full_width.RequestFor(0, Incarnation(0));
  request.clear_encodings();
  CHECK(full_width.shard->Join(request, "test").ok());
}

TEST_CASE_METHOD(ShardFixture, "a worker whose config has another encoding is refused") {
  Start(2, {"exchange.gradient_encoding=FLOAT16"});
  ShardFixture other;
  other.Start(2);
  JoinRequest request = other.RequestFor(0, 77);
  *request.mutable_config() = other.config->Contract();
  CHECK_THAT(Message(shard->Join(request, "test").status()),
             Contains("exchange.gradient_encoding: FLOAT16"));
}

TEST_CASE_METHOD(ShardFixture, "a restarted worker goes on after its latest iteration") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Push(1, 0, {0, 0, 0, 0}).ok());
  REQUIRE(Push(1, 1, {0, 0, 0, 0}, 1).ok());
  shard->CloseStream(sessions[1].get());
  const auto joined = shard->Join(RequestFor(1, 77), "test");
  REQUIRE(joined.ok());
  CHECK(joined->start_iteration() == 2);
}

TEST_CASE_METHOD(ShardFixture, "under SYNC a lost worker fails the run, under ASYNC it does not") {
  Start(2);
  shard->CloseStream(sessions[1].get());
  REQUIRE(failures.size() == 1);
  CHECK(absl::IsUnavailable(failures[0]));
  CHECK_THAT(Message(failures[0]), Contains("worker 1 (test") && Contains("was lost"));

  ShardFixture async;
  async.Start(2, {"update.policy=ASYNC"});
  async.shard->CloseStream(async.sessions[1].get());
  CHECK(async.failures.empty());
}

TEST_CASE_METHOD(ShardFixture, "under SYNC a worker's reason for giving up reaches the others") {
  Start(2);
  REQUIRE(Leave(1, "its disk is full").ok());
  REQUIRE(failures.size() == 1);
  CHECK(Message(failures[0]) == "worker 1 gave up: its disk is full");
  CHECK(absl::IsFailedPrecondition(Leave(1, "its disk is full")));  // no longer a member
}

TEST_CASE_METHOD(ShardFixture, "a worker's reason for giving up is passed on escaped and bounded") {
  Start(2);
  REQUIRE(Leave(1, "x\n\x1b[2J" + std::string(100'000, 'x')).ok());
  REQUIRE(failures.size() == 1);
  CHECK_THAT(Message(failures[0]), Catch::StartsWith("worker 1 gave up: x\\n\\x1b[2Jx"));
  CHECK(Message(failures[0]).size() < 1100);
}

TEST_CASE_METHOD(ShardFixture, "only the first failure is reported") {
  Start(2);
  shard->CloseStream(sessions[1].get());
  shard->CloseStream(sessions[0].get());
  REQUIRE(failures.size() == 1);
  CHECK_THAT(Message(shard->failure()), Contains("worker 1"));
}

TEST_CASE_METHOD(ShardFixture,
                 "a chunk that waits too long fails the run and names who is missing") {
  Start(3);
  REQUIRE(Push(1, 0, {1, 1, 1, 1}).ok());
  clock.Advance(absl::Seconds(60));
  shard->CheckWaits();
  CHECK(failures.empty());
  clock.Advance(absl::Seconds(1));
  shard->CheckWaits();
  REQUIRE(failures.size() == 1);
  CHECK(absl::IsDeadlineExceeded(failures[0]));
  CHECK_THAT(
      Message(failures[0]),
      Contains("chunk 0 of iteration 0 has waited longer than limits.exchange_seconds (1m1s) for "
               "worker 0 (test, joined, last seen 1m1s ago), worker 2 (test"));
}

TEST_CASE_METHOD(ShardFixture,
                 "under SYNC a worker that is still starting may fail and come back") {
  Start(2);
  LeaveRequest leave;
  leave.set_worker(1);
  leave.set_incarnation(Incarnation(1));
  leave.set_error("another shard was not up");
  leave.set_before_start(true);
  REQUIRE(shard->Leave(leave).ok());
  CHECK(failures.empty());
  CHECK(shard->Join(RequestFor(1, 77), "test").ok());
}

TEST_CASE_METHOD(ShardFixture,
                 "a worker that the view has nobody for is waited for without limit") {
  Start(2);
  View view;
  view.add_slot()->mutable_primary();
  const auto adopt = [&](uint64_t incarnation) {
    view.set_number(view.number() + 1);
    view.clear_worker();
    view.add_worker()->set_incarnation(incarnation);
    view.add_worker()->set_incarnation(Incarnation(1));
    REQUIRE(shard->Adopt(view).ok());
  };
  adopt(Incarnation(0));
  REQUIRE(Push({.worker = 1, .incarnation = Incarnation(1), .view = 1}, {1, 1, 1, 1}).ok());
  adopt(0);
  clock.Advance(absl::Hours(1));
  shard->CheckWaits();
  CHECK(failures.empty());
  adopt(77);  // it has all the time to come
  clock.Advance(absl::Seconds(59));
  shard->CheckWaits();
  CHECK(failures.empty());
  clock.Advance(absl::Seconds(2));
  shard->CheckWaits();
  REQUIRE(failures.size() == 1);
  CHECK(absl::IsDeadlineExceeded(failures[0]));
}

TEST_CASE_METHOD(ShardFixture, "the next start of a worker has all the time to come") {
  Start(2);
  auto adopt = [this, number = 0](uint64_t incarnation) mutable {
    View view;
    view.set_number(++number);
    view.add_slot()->mutable_primary();
    view.add_worker()->set_incarnation(incarnation);
    view.add_worker()->set_incarnation(Incarnation(1));
    REQUIRE(shard->Adopt(view).ok());
  };
  adopt(Incarnation(0));
  REQUIRE(Push({.worker = 1, .incarnation = Incarnation(1), .view = 1}, {1, 1, 1, 1}).ok());
  clock.Advance(absl::Seconds(50));
  adopt(0);
  adopt(77);  // between two looks at who is waited for
  clock.Advance(absl::Seconds(59));
  shard->CheckWaits();
  CHECK(failures.empty());
  adopt(77);  // another view gives the same start no more time
  clock.Advance(absl::Seconds(2));
  shard->CheckWaits();
  REQUIRE(failures.size() == 1);
  CHECK(absl::IsDeadlineExceeded(failures[0]));
}

TEST_CASE_METHOD(ShardFixture,
                 "a worker that is held up by one that the view has nobody for has time as well") {
  Start(2, {"model.input.channels=16", "update.deterministic=true"});
  View view;
  view.add_slot()->mutable_primary();
  view.set_number(1);
  view.add_worker()->set_incarnation(Incarnation(0));
  view.add_worker()->set_incarnation(Incarnation(1));
  REQUIRE(shard->Adopt(view).ok());
  const std::vector<float> gradient(16, 1);
  GradientHeader header = {.worker = 0, .incarnation = Incarnation(0), .chunk = 1, .view = 1};
  REQUIRE(Push(header, gradient).ok());
  clock.Advance(absl::Seconds(1));
  // Worker 1 could push chunk 1 only if its stream were read on.
  header = {.worker = 1, .incarnation = Incarnation(1), .chunk = 0, .view = 1};
  REQUIRE(Push(header, gradient).ok());
  view.set_number(2);
  view.mutable_worker(0)->clear_incarnation();
  REQUIRE(shard->Adopt(view).ok());
  clock.Advance(absl::Hours(1));
  shard->CheckWaits();
  CHECK(failures.empty());
  view.set_number(3);
  SECTION("until it is back") { view.mutable_worker(0)->set_incarnation(77); }
  SECTION("until the run goes on without it") {
    view.add_worker_set()->add_rank(0);
    view.mutable_worker_set(0)->add_rank(1);
    view.add_worker_set()->add_rank(1);
    view.mutable_worker_set(1)->set_from_iteration(1);
  }
  REQUIRE(shard->Adopt(view).ok());
  clock.Advance(absl::Seconds(59));
  shard->CheckWaits();
  CHECK(failures.empty());
  clock.Advance(absl::Seconds(2));
  shard->CheckWaits();
  CHECK(failures.size() == 1);
}

TEST_CASE_METHOD(ShardFixture, "while nobody holds some slot, its workers are waited for") {
  Start(2);
  View view;
  view.set_number(1);
  view.add_slot()->mutable_primary();
  view.add_slot();
  for (const int rank : {0, 1}) view.add_worker()->set_incarnation(Incarnation(rank));
  REQUIRE(shard->Adopt(view).ok());
  REQUIRE(Push({.worker = 1, .incarnation = Incarnation(1), .view = 1}, {1, 1, 1, 1}).ok());
  clock.Advance(absl::Hours(1));
  shard->CheckWaits();
  CHECK(failures.empty());
}

TEST_CASE_METHOD(ShardFixture, "a worker that joins and opens no stream is lost after a grace") {
  Start(2, {"update.policy=ASYNC"});
  REQUIRE(Leave(1).ok());
  REQUIRE(shard->Join(RequestFor(1, 77), "test").ok());
  clock.Advance(Membership::kStreamGrace - absl::Seconds(3));
  shard->CheckWaits();
  CHECK(shard->Stats().worker(1).state() == WorkerStats::JOINED);
  // Another incarnation is told that this passes, and when.
  const absl::Status taken = shard->Join(RequestFor(1, 78), "test").status();
  CHECK(absl::IsUnavailable(taken));
  CHECK_THAT(Message(taken), Contains("rank 1 is taken by worker 1 (test, joined") &&
                                 Contains("it is free in 3s at the latest"));
  clock.Advance(absl::Seconds(3));
  shard->CheckWaits();
  CHECK(shard->Stats().worker(1).state() == WorkerStats::LOST);
  CHECK(shard->Join(RequestFor(1, 78), "test").ok());
  CHECK(failures.empty());

  ShardFixture sync;
  sync.Start(2);
  REQUIRE(sync.Leave(1).ok());
  REQUIRE(sync.shard->Join(sync.RequestFor(1, 77), "test").ok());
  sync.clock.Advance(Membership::kStreamGrace);
  sync.shard->CheckWaits();
  REQUIRE(sync.failures.size() == 1);
  CHECK(absl::IsUnavailable(sync.failures[0]));
  CHECK_THAT(Message(sync.failures[0]),
             Contains("worker 1 (test") && Contains("was lost: it joined and opened no stream"));
}

TEST_CASE_METHOD(ShardFixture,
                 "an update that needs a worker which has finished fails the run, saying so") {
  Start(2);
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  REQUIRE(Push(1, 0, {1, 1, 1, 1}).ok());
  REQUIRE(Leave(0).ok());
  shard->CheckWaits();
  CHECK(failures.empty());  // worker 1 may be done too
  REQUIRE(Push(1, 1, {1, 1, 1, 1}, 1).ok());
  shard->CheckWaits();
  REQUIRE(failures.size() == 1);
  CHECK(absl::IsAborted(failures[0]));
  CHECK(Message(failures[0]) ==
        "worker 0 (test, left, last seen 0 ago at iteration 0) has finished, and others go on to "
        "iteration 1, which needs it; under SYNC all workers train equally long, but for "
        "PyTorch scripts in `with optimizer.join():` of Optimizer or DistributedOptimizer");
}

TEST_CASE_METHOD(ShardFixture,
                 "a worker may push its last chunk and leave while waits are checked") {
  Start(2, {"model.layer[0].linear.out_features=16"});
  std::deque<StoredChunk>& chunks = shard->store().chunks();
  REQUIRE(chunks.size() == 2);
  const std::vector<float> zeros(chunks[0].info().size);
  REQUIRE(Push(0, 0, zeros).ok());
  std::thread check;
  {
    // Stops the check after it has seen that chunk 0 waits for worker 1.
    absl::MutexLock lock(&chunks[1].mutex);
    check = std::thread([&] { shard->CheckWaits(); });
    absl::SleepFor(absl::Milliseconds(20));
    CHECK(Push(1, 0, zeros).ok());
    CHECK(Leave(1).ok());
  }
  check.join();
  CHECK(failures.empty());
}

TEST_CASE_METHOD(ShardFixture, "a wait that ends with the run is not said to go on") {
  Start(2);
  const CapturedLog log;
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  clock.Advance(absl::Seconds(10));
  shard->CheckWaits();
  CHECK_THAT(log.text(), Contains("iteration 0 has waited 10s for worker 1"));
  shard->CloseStream(sessions[1].get());
  REQUIRE(failures.size() == 1);
  shard->CheckWaits();
  CHECK_THAT(log.text(), !Contains("goes on"));
}

TEST_CASE_METHOD(ShardFixture, "what a worker sends after its session has ended is not counted") {
  for (const std::string policy : {"ASYNC", "SYNC"}) {
    for (const std::string end : {"leaves", "is lost", "is replaced"}) {
      CAPTURE(policy, end);
      ShardFixture fixture;
      fixture.Start(1, {"update.policy=" + policy});
      REQUIRE(fixture.Push(0, 0, {1, 1, 1, 1}).ok());
      const std::shared_ptr<WorkerSession> old = fixture.sessions[0];
      if (end == "leaves") REQUIRE(fixture.Leave(0).ok());
      if (end == "is lost" && policy == "SYNC") continue;  // the run has failed
      if (end == "is lost") fixture.shard->CloseStream(old.get());
      if (end == "is replaced") REQUIRE(fixture.Leave(0).ok());
      std::shared_ptr<WorkerSession> successor;
      if (end == "is replaced") {
        const JoinRequest request = fixture.RequestFor(0, 77);
        const auto joined = fixture.shard->Join(request, "test");
        REQUIRE(joined.ok());
        CHECK(joined->start_iteration() == 1);
        successor = *fixture.shard->OpenStream(0, 77);
      }
      const absl::Status late = fixture.Push(0, 1, {5, 5, 5, 5}, 1);
      CHECK(absl::IsFailedPrecondition(late));
      CHECK_THAT(Message(late), Contains("after its rank had passed on"));
      CHECK(fixture.Applied()[0] == Approx(1));
      if (successor == nullptr) continue;
      // The successor's push of that iteration is no repeat.
      fixture.sessions[0] = successor;
      GradientHeader header = fixture.Header(0, 1, 1);
      header.incarnation = 77;
      REQUIRE(fixture.Push(header, {2, 2, 2, 2}).ok());
      CHECK(fixture.Applied()[0] == Approx(3));
      CHECK(fixture.shard->Stats().repeated_pushes() == 0);
    }
  }
}

TEST_CASE_METHOD(ShardFixture, "whatever overtakes what, each iteration of a rank counts once") {
  // Incarnations take over from one another while those before them go on pushing. Each applied
  // push adds 1, and each incarnation is told to start after what was applied before.
  Start(1, {"update.policy=ASYNC"});
  struct Sender {
    std::shared_ptr<WorkerSession> session;
    uint64_t start = 0;
    std::thread thread;
  };
  std::deque<Sender> senders;
  std::atomic<uint64_t> counted{0};
  uint64_t incarnation = Incarnation(0);
  REQUIRE(Leave(0).ok());
  for (int generation = 0; generation < 60; ++generation) {
    const auto joined = shard->Join(RequestFor(0, ++incarnation), "test");
    REQUIRE(joined.ok());
    // From here on, no push of an earlier incarnation is counted.
    const uint64_t counted_by_shard = shard->Stats().pushes();
    CHECK(counted_by_shard == joined->start_iteration());
    Sender& sender = senders.emplace_back();
    sender.session = *shard->OpenStream(0, incarnation);
    sender.start = joined->start_iteration();
    sender.thread = std::thread([&, incarnation] {
      const std::string ones = [] {
        std::string bytes(4 * sizeof(float), '\0');
        const float values[] = {1, 1, 1, 1};
        std::memcpy(bytes.data(), values, sizeof(values));
        return bytes;
      }();
      auto sink = std::make_shared<RecordingSink>();
      for (uint64_t i = sender.start; i < sender.start + 2000; ++i) {
        GradientHeader header = Header(0, i);
        header.incarnation = incarnation;
        if (!shard->Push(*sender.session, Gradient{header, {ones}, nullptr}, sink).ok()) return;
        ++counted;
      }
    });
    std::this_thread::yield();
    LeaveRequest leave;
    leave.set_worker(0);
    leave.set_incarnation(incarnation);
    REQUIRE(shard->Leave(leave).ok());
  }
  for (Sender& sender : senders) sender.thread.join();
  CHECK(shard->Stats().pushes() == counted);
  CHECK(shard->Stats().repeated_pushes() == 0);
  CHECK(Applied()[0] == Approx(static_cast<double>(counted)).epsilon(1e-3));
}

TEST_CASE_METHOD(ShardFixture, "a Join is answered after the push that is being counted") {
  Start(1, {"update.policy=ASYNC"});
  PausingClock pausing;
  const auto paused_shard = Shard::Create({.config = config.get(), .clock = &pausing});
  REQUIRE(paused_shard.ok());
  Shard& shard = **paused_shard;
  const uint64_t first = Incarnation(0), second = 77;
  REQUIRE(shard.Join(RequestFor(0, first), "test").ok());
  const auto session = shard.OpenStream(0, first);
  REQUIRE(session.ok());

  // The push is counted under its chunk's lock, with the time at which the worker was last seen.
  pausing.armed = true;
  const std::string zeros(4 * sizeof(float), '\0');
  absl::Status pushed = absl::UnknownError("did not run");
  std::thread push([&] {
    pushed = shard.Push(**session, Gradient{Header(0, 0), {zeros}, nullptr}, sinks[0]);
  });
  pausing.paused.WaitForNotification();
  LeaveRequest leave;
  leave.set_worker(0);
  leave.set_incarnation(first);
  CHECK(shard.Leave(leave).ok());
  absl::StatusOr<JoinResponse> joined = absl::UnknownError("did not run");
  absl::Notification answered;
  std::thread join([&] {
    joined = shard.Join(RequestFor(0, second), "test");
    answered.Notify();
  });
  CHECK_FALSE(answered.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  pausing.resumed.Notify();
  push.join();
  join.join();
  CHECK(pushed.ok());
  REQUIRE(joined.ok());
  CHECK(joined->start_iteration() == 1);
}

TEST_CASE_METHOD(ShardFixture, "statistics name the longest wait of 1 s or more and its workers") {
  Start(3);
  REQUIRE(Push(0, 0, {1, 1, 1, 1}).ok());
  REQUIRE(Push(1, 0, {1, 1, 1, 1}).ok());
  REQUIRE(Push(2, 0, {1, 1, 1, 1}).ok());
  clock.Advance(absl::Seconds(1));
  CHECK_FALSE(shard->Stats().has_wait());

  REQUIRE(Push(1, 1, {1, 1, 1, 1}).ok());
  clock.Advance(absl::Milliseconds(900));
  CHECK_FALSE(shard->Stats().has_wait());
  clock.Advance(absl::Milliseconds(600));
  const ShardStats stats = shard->Stats();
  CHECK(stats.wait().iteration() == 1);
  CHECK(stats.wait().seconds() == Approx(1.5));
  CHECK(std::vector<uint32_t>(stats.wait().worker().begin(), stats.wait().worker().end()) ==
        std::vector<uint32_t>{0, 2});
}

TEST_CASE_METHOD(ShardFixture, "a report of a worker's usage appears in the statistics") {
  Start(2);
  ReportRequest request;
  request.set_worker(1);
  request.set_incarnation(Incarnation(1));
  request.mutable_usage()->set_device("NVIDIA H200");
  REQUIRE(shard->Report(request).ok());
  CHECK(shard->Stats().worker(1).usage().device() == "NVIDIA H200");

  SECTION("one of an unreasonable size is refused, and the one before is kept") {
    request.mutable_usage()->set_device(std::string(300, 'x'));
    const absl::Status status = shard->Report(request);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Message(status) == "worker 1 reported usage of 303 bytes; allowed: 256");
    CHECK(shard->Stats().worker(1).usage().device() == "NVIDIA H200");
  }
  SECTION("one of another incarnation is refused") {
    request.set_incarnation(Incarnation(0));
    CHECK(absl::IsFailedPrecondition(shard->Report(request)));
  }
}

}  // namespace evenshard
