#include "worker/exchange/core/parameter_bootstrap.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/placement/planned_config.h"
#include "tests/worker/exchange/core/core_fixture.h"

namespace evenshard {
namespace {

using Kind = ParameterBootstrap::Step::Kind;

ParameterBootstrap MakeBootstrap(CoreFixture* fixture, int rank = 1, bool brings = false) {
  return ParameterBootstrap({.config = &fixture->config,
                             .clock = &fixture->clock,
                             .core = &fixture->core,
                             .rank = rank,
                             .brings_parameters = brings});
}

ParameterBootstrap::Step NextOf(ParameterBootstrap* bootstrap) {
  const absl::StatusOr<ParameterBootstrap::Step> step = bootstrap->Next();
  if (!step.ok()) FAIL(step.status());
  return *step;
}

// Every chunk is pulled in this version.
void Pull(CoreFixture* fixture, uint64_t version) {
  for (const Chunk& chunk : fixture->config.plan().chunks()) {
    std::vector<float> parameters(chunk.size);
    fixture->core.round().TakePulled(chunk.id, version, version, absl::MakeSpan(parameters));
  }
}

// Goes through an iteration, in which the answers have the versions after it.
void Exchange(CoreFixture* fixture, uint64_t iteration) {
  fixture->PushAll(iteration);
  for (const int slot : {0, 1}) {
    for (const GradientHeader& push : fixture->TakeAll(slot)) fixture->Answer(push);
  }
  fixture->core.round().End();
}

PlannedConfig BroughtConfig() {
  const absl::StatusOr<PlannedConfig> undeclared = PlannedConfig::Parse(R"(
    model { from_workers {} }
    partition { scheme: MEMORY_BASED }
    shard { address: "a:1" }
    shard { address: "b:2" }
    workers: 3
    update { policy: SYNC }
  )",
                                                                        "test", {});
  if (!undeclared.ok()) FAIL(undeclared.status());
  Declaration declaration;
  for (const std::string name : {"a.w", "a.b", "b.w", "b.b"}) {
    DeclaredTensor& tensor = *declaration.mutable_model()->add_tensor();
    tensor.set_name(name);
    tensor.add_shape(64);
  }
  absl::StatusOr<PlannedConfig> config = undeclared->Declared(declaration);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

// A run whose workers joined at iteration 42, when rank 2 had trained alone.
struct LateFixture : CoreFixture {
  LateFixture() : CoreFixture({}, /*has_views=*/true) {
    view.set_number(1);
    view.set_generation(1);
    for (const std::string address : {"a:1", "b:2"}) {
      view.add_slot()->mutable_primary()->set_address(address);
    }
    WorkerSet* before = view.add_worker_set();
    before->add_rank(2);
    WorkerSet* now = view.add_worker_set();
    now->set_from_iteration(42);
    for (const uint32_t rank : {0, 1, 2}) {
      now->add_rank(rank);
      view.add_worker()->set_state(WorkerView::MEMBER);
      view.mutable_worker(rank)->set_incarnation(rank == 1 ? kIncarnation : rank + 1);
    }
    core.Start();
    core.OnView(view);
    Connect(0, 41);
    Connect(1, 41);
    REQUIRE(core.ready());
  }
  void Abandon() {
    view.set_number(view.number() + 1);
    view.mutable_worker(2)->set_state(WorkerView::FINISHED);
    core.OnView(view);
  }

  View view;
};

}  // namespace

TEST_CASE("a worker pulls the parameters of a run that has a model") {
  CoreFixture fixture;
  fixture.StartAndConnect();
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture);
  const ParameterBootstrap::Step step = NextOf(&bootstrap);
  CHECK(step.kind == Kind::kPull);
  CHECK(step.not_before <= fixture.clock.Now());
  Pull(&fixture, 0);
  CHECK(NextOf(&bootstrap).kind == Kind::kDone);
}

TEST_CASE("a worker that joins late gets the parameters by taking part in an iteration") {
  LateFixture fixture;
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture);
  const ParameterBootstrap::Step step = NextOf(&bootstrap);
  CHECK(step.kind == Kind::kExchange);
  CHECK(step.iteration == 41);
  CHECK(step.exchange.skip);
  CHECK_FALSE(step.exchange.assigned.has_value());
  CHECK(step.contribution == Contribution::kZeros);
  Exchange(&fixture, 41);
  CHECK(NextOf(&bootstrap).kind == Kind::kDone);
  CHECK_FALSE(fixture.core.catch_up().iteration.has_value());
  CHECK(fixture.core.round().next_iteration() == 42);
}

TEST_CASE("a worker that joins late pulls if nobody is left who would answer") {
  LateFixture fixture;
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture);
  const bool is_early = GENERATE(true, false);
  if (is_early) {
    fixture.Abandon();
  } else {
    REQUIRE(NextOf(&bootstrap).kind == Kind::kExchange);
    fixture.PushAll(41);
    fixture.Abandon();
    REQUIRE(fixture.core.round().Settled());
    fixture.core.round().End();
  }
  CHECK(NextOf(&bootstrap).kind == Kind::kPull);
  Pull(&fixture, 42);
  CHECK(NextOf(&bootstrap).kind == Kind::kDone);
  CHECK(fixture.core.round().next_iteration() == 42);
  // From now on what is pushed is waited for.
  fixture.PushAll(42);
  CHECK_FALSE(fixture.core.round().AllAnswered());
}

TEST_CASE("a worker without which the run has gone on looks on until it is where the run is") {
  CoreFixture fixture({"update.policy=QUORUM", "update.quorum=2"});
  fixture.StartAndConnect();
  ExchangeRound& round = fixture.core.round();
  const auto exchange = [&](uint64_t next) {  // the iteration at which the shards are
    for (const int slot : {0, 1}) {
      for (const GradientHeader& push : fixture.TakeAll(slot)) {
        const absl::StatusOr<bool> counts = round.Claim(
            slot, {.iteration = push.iteration, .chunk = push.chunk, .next_iteration = next});
        REQUIRE((counts.ok() && *counts));
        round.Answered(push.chunk, next);
      }
    }
    round.End();
  };
  fixture.PushAll(0);
  exchange(5);
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture);
  for (const uint64_t iteration : {4, 6}) {
    const ParameterBootstrap::Step step = NextOf(&bootstrap);
    REQUIRE(step.kind == Kind::kExchange);
    CHECK(step.iteration == iteration);
    CHECK(step.exchange.onlooks);
    REQUIRE(round.Begin(step.iteration, step.exchange).ok());
    REQUIRE(round.Push(kAllTensors, step.contribution).ok());
    exchange(7);
  }
  CHECK(NextOf(&bootstrap).kind == Kind::kDone);
  CHECK(round.next_iteration() == 7);
}

TEST_CASE("worker 0 gives the initial parameters, and the others take part") {
  CoreFixture fixture(BroughtConfig());
  fixture.StartAndConnect();
  const int rank = GENERATE(0, 1);
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture, rank, /*brings=*/true);
  const ParameterBootstrap::Step step = NextOf(&bootstrap);
  CHECK(step.kind == Kind::kExchange);
  CHECK(step.iteration == 0);
  CHECK(step.exchange.assigned == 0u);
  CHECK((step.contribution == Contribution::kGradient) == (rank == 0));
  Exchange(&fixture, 0);
  CHECK(NextOf(&bootstrap).kind == Kind::kDone);
  CHECK(fixture.core.round().next_iteration() == 1);
}

TEST_CASE("what worker 0 has yet to give is pulled again, up to a limit") {
  CoreFixture fixture(BroughtConfig());
  fixture.core.Start();
  fixture.Connect(0, 1);
  fixture.Connect(1, 1);
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture, 1, /*brings=*/true);
  CHECK(NextOf(&bootstrap).kind == Kind::kPull);
  Pull(&fixture, 0);
  const ParameterBootstrap::Step again = NextOf(&bootstrap);
  CHECK(again.kind == Kind::kPull);
  CHECK(again.not_before == fixture.clock.Now() + absl::Milliseconds(10));
  SECTION("it comes") {
    Pull(&fixture, 1);
    CHECK(NextOf(&bootstrap).kind == Kind::kDone);
  }
  SECTION("it does not") {
    fixture.core.round().Follow(1, /*waits_for_others=*/true);  // worker 0 is absent
    CHECK(NextOf(&bootstrap).kind == Kind::kPull);
    fixture.clock.Advance(fixture.core.round().limit());
    CHECK(NextOf(&bootstrap).kind == Kind::kPull);
    fixture.core.round().Follow(2);  // it is back
    CHECK(NextOf(&bootstrap).kind == Kind::kPull);
    fixture.clock.Advance(fixture.core.round().limit());
    CHECK(absl::IsDeadlineExceeded(bootstrap.Next().status()));
  }
}

TEST_CASE("a failure of the exchange ends the bootstrap") {
  CoreFixture fixture;
  fixture.StartAndConnect();
  ParameterBootstrap bootstrap = MakeBootstrap(&fixture);
  fixture.core.Fail(absl::AbortedError("the run goes back"));
  CHECK(bootstrap.Next().status() == absl::AbortedError("the run goes back"));
}

}  // namespace evenshard
