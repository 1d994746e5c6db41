// ExchangeCore in a run with views.

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error_kind.h"
#include "tests/testing/thread_check.h"
#include "tests/worker/exchange/core/core_fixture.h"

namespace evenshard {
namespace {

using Catch::Contains;

// A run with views.
struct ViewFixture : CoreFixture {
  explicit ViewFixture(const std::vector<std::string>& overrides = {})
      : CoreFixture(overrides, /*has_views=*/true) {
    view.set_number(1);
    view.set_generation(1);
    for (const std::string address : {"a:1", "b:2"}) {
      ProcessId* primary = view.add_slot()->mutable_primary();
      primary->set_process(view.slot_size() - 1);
      primary->set_incarnation(100 + view.slot_size());
      primary->set_address(address);
    }
    WorkerSet* worker_set = view.add_worker_set();
    for (const uint32_t rank : {0, 1, 2}) {
      worker_set->add_rank(rank);
      view.add_worker()->set_state(WorkerView::MEMBER);
      view.mutable_worker(rank)->set_incarnation(rank == 1 ? kIncarnation : rank + 1);
    }
  }
  void Follow() {
    core.OnView(view);
    view.set_number(view.number() + 1);
  }
  void FollowAndConnect() {
    core.Start();
    Follow();
    Connect(0, 0, 9);
    Connect(1, 0, 9);
    REQUIRE(core.ready());
  }

  View view;  // the next one
};

}  // namespace

TEST_CASE("a process that takes slot 0 over is told what was registered, and no other") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  CHECK(!fixture.transport.latest[0]->join.has_state());
  RegisteredState state;
  state.set_iteration(7);
  (*state.mutable_value())["scheduler"] = "{}";
  fixture.core.Keep(state);
  for (SlotView& slot : *fixture.view.mutable_slot()) {
    slot.mutable_primary()->set_incarnation(slot.primary().incarnation() + 50);
  }
  fixture.Follow();
  CHECK(fixture.transport.latest[0]->join.state().iteration() == 7);
  CHECK(fixture.transport.latest[0]->join.state().value().at("scheduler") == "{}");
  CHECK(!fixture.transport.latest[1]->join.has_state());
  // What it was before the run went back does not count any more.
  fixture.view.set_generation(2);
  fixture.Follow();
  fixture.core.Keep(state);
  fixture.core.Resume();
  REQUIRE(fixture.transport.latest[0].has_value());
  CHECK(!fixture.transport.latest[0]->join.has_state());
}

TEST_CASE("with views a worker connects when it is a member, to the slots' primaries") {
  ViewFixture fixture;
  fixture.view.mutable_worker(1)->set_state(WorkerView::JOINING);
  fixture.core.Start();
  fixture.Follow();
  CHECK(fixture.transport.attempts.empty());
  fixture.view.mutable_worker(1)->set_state(WorkerView::MEMBER);
  fixture.view.mutable_worker(1)->set_incarnation(kIncarnation + 1);
  fixture.Follow();
  CHECK(fixture.transport.attempts.empty());  // that is another start
  fixture.view.mutable_worker(1)->set_incarnation(kIncarnation);
  fixture.view.mutable_slot(0)->mutable_primary()->set_address("c:3");
  fixture.Follow();
  REQUIRE(fixture.transport.attempts.size() == 1);
  CHECK(fixture.transport.latest[0]->address == "c:3");
  CHECK(fixture.transport.latest[0]->join.has_slot());
  CHECK(fixture.transport.latest[0]->join.view() == 3);
  fixture.Connect(0);
  fixture.Connect(1);
  CHECK(fixture.core.ready());
  CHECK(fixture.core.view_number() == 3);
  CHECK(fixture.core.State().view() == 3);
  CHECK(fixture.core.SlotName(0) == "shard 0 (c:3)");
  fixture.view.set_number(2);
  fixture.view.clear_slot();
  fixture.core.OnView(fixture.view);  // is older
  CHECK(fixture.core.view_number() == 3);
}

TEST_CASE("a view moves the slots whose primary has changed, and pushes again on the others") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.PushAll(0);
  for (const int slot : {0, 1}) {
    const std::vector<GradientHeader> pushed = fixture.TakeAll(slot);
    CHECK(pushed[0].view == 1);
    fixture.Answer(pushed[0], 1);
  }
  fixture.view.mutable_slot(1)->mutable_primary()->set_incarnation(4711);  // started again
  fixture.Follow();
  CHECK(fixture.transport.latest[0]->number == 1);
  const std::vector<GradientHeader> again = fixture.TakeAll(0);
  REQUIRE(again.size() == fixture.ChunksOf(0) - 1);
  CHECK(again[0].view == 2);
  fixture.Answer(again[0], 1);  // of the older view
  CHECK(fixture.TakeAll(1).empty());
  CHECK(fixture.Delay(1) == absl::ZeroDuration());
  CHECK(fixture.transport.latest[1]->join.view() == 2);

  // A view that comes during the attempt replaces it, since its Join names the older view.
  const uint64_t number = fixture.transport.latest[1]->number;
  fixture.Follow();
  CHECK(fixture.transport.latest[1]->number > number);
  CHECK(fixture.transport.latest[1]->join.view() == 3);
  fixture.Connect(1, 0, 9);
  CHECK(fixture.TakeAll(1).size() == fixture.ChunksOf(1) - 1);
  CHECK(fixture.TakeAll(0).size() == fixture.ChunksOf(0) - 1);  // none was answered since
  CHECK(fixture.core.failure().ok());
}

TEST_CASE("a worker says which slots it cannot reach where the view has them") {
  ViewFixture fixture({"recovery.replicas=1", "recovery.silence_seconds=8"});
  fixture.FollowAndConnect();
  const auto unreachable = [&] {
    const ProcessState state = fixture.core.State();
    return std::vector<uint32_t>(state.unreachable().begin(), state.unreachable().end());
  };
  fixture.Advance(absl::Seconds(4));
  CHECK(unreachable().empty());
  fixture.Break(1, absl::UnavailableError("gone"));
  fixture.Advance(absl::Seconds(1.5));
  CHECK(unreachable().empty());
  fixture.Advance(absl::Seconds(1));
  CHECK(unreachable() == std::vector<uint32_t>{1});
  SECTION("until it is connected") {
    fixture.Connect(1, 0, 9);
    CHECK(unreachable().empty());
  }
  SECTION("also in a newer view") {
    fixture.Follow();
    CHECK(unreachable() == std::vector<uint32_t>{1});
  }
  SECTION("until the slot is somewhere else, where it has time to be reached") {
    fixture.view.mutable_slot(1)->mutable_primary()->set_incarnation(4711);
    fixture.Follow();
    CHECK(unreachable().empty());
    fixture.Advance(absl::Seconds(2.5));
    CHECK(unreachable() == std::vector<uint32_t>{1});
  }
  SECTION("until the slot is nowhere") {
    fixture.view.mutable_slot(1)->clear_primary();
    fixture.Follow();
    CHECK(unreachable().empty());
  }
}

TEST_CASE("what a worker says of slots is taken back before it counts") {
  ViewFixture fixture({"recovery.replicas=1", "recovery.silence_seconds=1"});
  CHECK(fixture.core.tick_period() <= absl::Seconds(0.25));
}

TEST_CASE("a primary that cannot be reached is waited for, up to limits.exchange_seconds") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.view.mutable_slot(1)->mutable_primary()->set_incarnation(4711);
  fixture.Follow();
  fixture.Advance(absl::Seconds(20));
  CHECK(fixture.core.failure().ok());
  fixture.Advance(absl::Seconds(4));
  CHECK(fixture.core.failure() ==
        absl::DeadlineExceededError(
            "shard 1 (b:2) could not be reached for 23s (limits.exchange_seconds)"));
}

TEST_CASE("a slot that nobody holds is waited for until the run goes back") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.PushAll(0);
  fixture.TakeAll(0);
  std::thread waits([&] { ThreadCheck(absl::IsAborted(fixture.core.round().AwaitAll())); });
  fixture.view.mutable_slot(1)->clear_primary();
  fixture.Follow();
  CHECK_FALSE(fixture.transport.latest[1].has_value());
  for (int seconds = 0; seconds < 1000; ++seconds) {
    fixture.Advance(absl::Seconds(1));
    fixture.core.round().CheckProgress(fixture.clock.Now());
  }
  CHECK(fixture.core.failure().ok());
  fixture.view.set_generation(2);
  fixture.view.mutable_slot(1)->mutable_primary()->set_address("c:3");
  fixture.Follow();
  waits.join();
  REQUIRE(fixture.core.went_back());
  fixture.core.Resume();
  fixture.Connect(0, 0, 10);
  fixture.Advance(absl::Seconds(20));
  CHECK(fixture.core.failure().ok());  // the time without a primary does not count
  fixture.Connect(1, 0, 10);
  CHECK(fixture.core.ready());
}

TEST_CASE("a worker that joins waits for a slot that nobody holds, and so for the others") {
  ViewFixture fixture;
  fixture.core.Start();
  fixture.Follow();
  fixture.view.mutable_slot(0)->clear_primary();  // it decides, so slot 1 is not connected to yet
  fixture.Follow();
  fixture.Advance(absl::Seconds(1000));
  CHECK(fixture.core.failure().ok());
}

TEST_CASE("an iteration is settled when the view of the newest answer is followed") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.PushAll(0);
  for (const int slot : {0, 1}) {
    for (const GradientHeader& push : fixture.TakeAll(slot)) fixture.Answer(push, 2);
  }
  CHECK(fixture.core.round().AllAnswered());
  CHECK_FALSE(fixture.core.round().Settled());
  fixture.Follow();
  CHECK(fixture.core.round().Settled());
}

TEST_CASE("a new generation ends the iteration, and Resume connects anew") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  std::vector<float> pulled(1);
  for (const Chunk& chunk : fixture.config.plan().chunks()) {
    fixture.core.round().TakePulled(chunk.id, 5, 8, absl::MakeSpan(pulled));
  }
  fixture.PushAll(8);
  fixture.TakeAll(0);
  fixture.view.set_generation(2);
  fixture.view.set_checkpoint("generation-0001-iteration-0000000005");
  fixture.Follow();
  CHECK(fixture.core.went_back());
  const absl::Status failure = fixture.core.round().AwaitAll();
  CHECK(absl::IsAborted(failure));
  CHECK(KindOf(failure) == ErrorDetail::WENT_BACK);
  CHECK(failure.message() ==
        "the run goes back to checkpoint generation-0001-iteration-0000000005 (view 2)");
  CHECK_FALSE(fixture.transport.latest[0].has_value());
  CHECK_FALSE(fixture.transport.latest[1].has_value());
  fixture.Follow();
  CHECK_FALSE(fixture.transport.latest[0].has_value());

  fixture.core.Resume();
  CHECK_FALSE(fixture.core.went_back());
  CHECK_FALSE(fixture.core.ready());
  fixture.Connect(0, 5, 10);  // another history
  // Yet another generation while it connects only makes it connect anew.
  fixture.view.set_generation(3);
  fixture.Follow();
  CHECK_FALSE(fixture.core.went_back());
  fixture.Connect(0, 4, 11);
  fixture.Connect(1, 4, 11);
  REQUIRE(fixture.core.ready());
  CHECK(fixture.core.round().next_iteration() == 4);
  CHECK(fixture.core.failure().ok());
  fixture.PushAll(4);
  const std::vector<GradientHeader> pushes = fixture.TakeAll(0);
  CHECK(pushes.size() == fixture.ChunksOf(0));
  // A version of another generation says nothing of what the worker has.
  for (const GradientHeader& push : pushes) CHECK(push.base_version == 0);
}

TEST_CASE("a failure after the run went back is that of Resume") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.view.set_generation(2);
  fixture.Follow();
  fixture.core.Fail(absl::CancelledError("told to stop"));
  CHECK(fixture.core.went_back());
  fixture.core.Resume();
  CHECK(fixture.core.AwaitReady() == absl::CancelledError("told to stop"));
}

TEST_CASE("a worker that ends when the run has gone back is lost, and does not fail the run") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  CHECK(fixture.core.generation() == 1);
  SECTION("before it resumes") {
    fixture.view.set_generation(2);
    fixture.Follow();
    CHECK(fixture.core.generation() == 0);
    fixture.core.Stop(absl::AbortedError("WentBack"));
    CHECK(fixture.core.State().failure().empty());
  }
  SECTION("but not afterwards") {
    fixture.view.set_generation(2);
    fixture.Follow();
    fixture.core.Resume();
    fixture.Connect(0, 0, 10);
    fixture.Connect(1, 0, 10);
    CHECK(fixture.core.generation() == 2);
    fixture.core.Stop(absl::AbortedError("ValueError"));
    CHECK(fixture.core.State().failure() == "ValueError");
  }
}

TEST_CASE("a worker that joins a run under way catches up") {
  ViewFixture fixture;
  fixture.view.clear_worker_set();
  const auto add_worker_set = [&](uint64_t from, const std::vector<uint32_t>& ranks) {
    WorkerSet* worker_set = fixture.view.add_worker_set();
    worker_set->set_from_iteration(from);
    for (const uint32_t rank : ranks) worker_set->add_rank(rank);
  };
  add_worker_set(0, {0, 1, 2});
  add_worker_set(40, {0, 2});
  add_worker_set(42, {0, 1, 2});
  add_worker_set(50, {0, 1});
  fixture.core.Start();
  fixture.Follow();
  fixture.Connect(0, 39);  // an iteration of whose worker set it was before
  const uint64_t other = GENERATE(39, 42, 60);
  fixture.Connect(1, other);
  REQUIRE(fixture.core.ready());
  CHECK(fixture.core.round().next_iteration() == 42);
  REQUIRE(fixture.core.catch_up().iteration == 41);
  REQUIRE(fixture.core.round().Begin(41, {.skip = true}).ok());
  REQUIRE(fixture.core.round().Push(kAllTensors).ok());
  const std::vector<GradientHeader> pushed = fixture.TakeAll(0);
  CHECK(pushed.size() == fixture.ChunksOf(0));
  CHECK(pushed[0].skip);
  CHECK_FALSE(fixture.core.round().AllAnswered());

  // The others finish before they have pushed what the answers wait for.
  fixture.view.mutable_worker(0)->set_state(WorkerView::FINISHED);
  fixture.Follow();
  CHECK(fixture.core.round().Settled());
  CHECK(fixture.core.catch_up().abandoned);
  fixture.core.EndCatchUp();
  CHECK_FALSE(fixture.core.catch_up().iteration.has_value());
}

TEST_CASE("workers that join together do not wait for one another") {
  ViewFixture fixture;
  fixture.view.clear_worker_set();
  for (const auto& [from, ranks] :
       std::vector<std::pair<uint64_t, std::vector<uint32_t>>>{{0, {2}}, {42, {0, 1, 2}}}) {
    WorkerSet* worker_set = fixture.view.add_worker_set();
    worker_set->set_from_iteration(from);
    worker_set->mutable_rank()->Add(ranks.begin(), ranks.end());
  }
  fixture.core.Start();
  fixture.Follow();
  fixture.Connect(0, 41);
  fixture.Connect(1, 41);
  REQUIRE(fixture.core.catch_up().iteration == 41);
  CHECK_FALSE(fixture.core.catch_up().abandoned);
  // The only worker that counts in iteration 41 finishes.
  fixture.view.mutable_worker(2)->set_state(WorkerView::FINISHED);
  fixture.Follow();
  CHECK(fixture.core.catch_up().abandoned);
}

TEST_CASE("a replacement that is in the worker set starts where the slots are") {
  ViewFixture fixture;
  fixture.core.Start();
  fixture.Follow();
  fixture.Connect(0, 39);
  fixture.Connect(1, 40);
  REQUIRE(fixture.core.ready());
  CHECK(fixture.core.round().next_iteration() == 39);
  CHECK_FALSE(fixture.core.catch_up().iteration.has_value());
}

TEST_CASE("a member that the run counts as lost ends") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.view.mutable_worker(1)->set_state(WorkerView::LEAVING);
  fixture.Follow();
  CHECK(fixture.core.failure() ==
        absl::FailedPreconditionError("the run counts this worker as lost (view 2)"));
}

TEST_CASE("a worker that gives up fails the run, unless the run has dismissed it") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  const int why = GENERATE(0, 1, 2, 3);
  if (why == 1) fixture.core.OnEnd(absl::UnavailableError("launch is gone"));
  if (why == 2) {
    fixture.view.mutable_worker(1)->set_incarnation(4711);
    fixture.Follow();
  }
  CHECK(fixture.core.State().failure().empty());
  fixture.core.Stop(why == 3 ? absl::CancelledError("stopped") : absl::DataLossError("bad image"));
  CHECK(fixture.core.State().failure() == (why == 0 ? "bad image" : ""));
  CHECK(fixture.core.State().incarnation() == kIncarnation);
  CHECK(fixture.core.State().worker() == 1);
}

TEST_CASE("a worker's failure can be sent though its text is not UTF-8") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  const absl::Status failure = absl::DataLossError("no image in Zoo/B\xe4ren");  // Latin-1
  const LeaveRequest leave = fixture.core.LeaveMessage(failure);
  CHECK(leave.error() == "no image in Zoo/B\\xe4ren");
  CHECK(LeaveRequest().ParseFromString(leave.SerializeAsString()));
  fixture.core.Stop(failure);
  const ProcessState state = fixture.core.State();
  CHECK(state.failure() == leave.error());
  CHECK(ProcessState().ParseFromString(state.SerializeAsString()));
}

TEST_CASE("a worker has finished when the training has ended, unless the run goes back before") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.core.BeginLeave(absl::OkStatus());
  CHECK_FALSE(fixture.core.State().finished());
  fixture.Break(0);
  CHECK(fixture.transport.attempts.size() == 2);  // is not connected again
  CHECK_FALSE(fixture.core.LeaveMessage(absl::OkStatus()).before_start());
  fixture.core.EndLeave();
  CHECK(fixture.core.State().finished());
  fixture.Follow();
  fixture.view.mutable_worker(1)->set_state(WorkerView::FINISHED);
  fixture.Follow();
  fixture.Advance(absl::Seconds(1000));  // others train
  CHECK_FALSE(fixture.core.finished());
  CHECK(fixture.core.failure().ok());
  SECTION("to the end") {
    fixture.view.set_finished(true);
    fixture.Follow();
    CHECK(fixture.core.AwaitFinished().ok());
  }
  SECTION("until the run goes back") {
    fixture.view.set_generation(2);
    fixture.view.mutable_worker(1)->set_state(WorkerView::MEMBER);
    fixture.Follow();
    CHECK(absl::IsAborted(fixture.core.AwaitFinished()));
    CHECK(fixture.core.went_back());
    CHECK_FALSE(fixture.core.State().finished());  // which is of the new view
    fixture.core.Resume();
    CHECK(fixture.transport.latest[0].has_value());
  }
  SECTION("until the run goes back, and then gathers its workers") {
    fixture.view.set_generation(2);
    fixture.view.mutable_worker(1)->Clear();
    fixture.Follow();
    fixture.core.Resume();
    CHECK(fixture.core.failure().ok());
    fixture.view.mutable_worker(1)->set_state(WorkerView::MEMBER);
    fixture.view.mutable_worker(1)->set_incarnation(kIncarnation);
    fixture.Follow();
    CHECK(fixture.transport.latest[0].has_value());
  }
}

TEST_CASE("without a view a worker gives up") {
  ViewFixture fixture;
  fixture.core.Start();
  fixture.Advance(absl::Seconds(8));
  CHECK(absl::IsDeadlineExceeded(fixture.core.AwaitReady()));
  CHECK_THAT(std::string(fixture.core.failure().message()), Contains("within 8 s"));
}

TEST_CASE("a worker that the run does not need waits until it does, or has ended") {
  ViewFixture fixture;
  fixture.core.Start();
  // The start before has finished, or the run goes on without it.
  fixture.view.mutable_worker(1)->set_incarnation(4711);
  fixture.view.mutable_worker(1)->set_state(GENERATE(WorkerView::FINISHED, WorkerView::ABSENT));
  fixture.Follow();
  fixture.Advance(absl::Seconds(1000));
  CHECK(fixture.core.failure().ok());
  SECTION("it is needed") {
    fixture.view.mutable_worker(1)->set_incarnation(kIncarnation);
    fixture.view.mutable_worker(1)->set_state(WorkerView::MEMBER);
    fixture.Follow();
    CHECK(fixture.transport.latest[0].has_value());
  }
  SECTION("the run has ended") {
    fixture.view.set_finished(true);
    fixture.Follow();
    CHECK(fixture.core.AwaitReady() ==
          absl::FailedPreconditionError("the training has ended without this worker (view 2)"));
    fixture.core.Stop(fixture.core.failure());
    CHECK(fixture.core.State().failure().empty());
  }
}

TEST_CASE("the end of the views ends the exchange") {
  ViewFixture fixture;
  fixture.FollowAndConnect();
  fixture.core.OnEnd(absl::UnavailableError("launch is gone"));
  CHECK(fixture.core.failure() == absl::UnavailableError("launch is gone"));
}

}  // namespace evenshard
