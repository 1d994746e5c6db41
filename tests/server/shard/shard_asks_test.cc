// What workers ask a shard, and tell it, beside the exchange.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace evenshard {
namespace {

using Catch::Contains;

// A new process, of which worker 0 asks, and worker 1 has finished.
class AfterTheFinish : public ShardFixture {
 public:
  AfterTheFinish() {
    Start(1, {"workers=2"});
    View view;
    view.set_number(1);
    view.add_slot()->mutable_primary();
    view.add_worker()->set_incarnation(Incarnation(0));
    view.add_worker()->set_incarnation(Incarnation(1));
    view.mutable_worker(1)->set_state(WorkerView::FINISHED);
    REQUIRE(shard->Adopt(view).ok());
  }
};

TEST_CASE_METHOD(ShardFixture, "a mean does not wait for a worker that the run goes on without") {
  Start(3);
  View view;
  view.set_number(1);
  view.add_slot()->mutable_primary();
  for (const int rank : {0, 1, 2}) view.add_worker()->set_incarnation(Incarnation(rank));
  REQUIRE(shard->Adopt(view).ok());
  const auto is_complete = [&](uint32_t rank, double value) {
    MeanRequest request;
    request.set_worker(rank);
    request.set_incarnation(Incarnation(rank));
    request.add_value(value);
    const absl::StatusOr<MeanResponse> response = shard->Mean(request);
    REQUIRE(response.ok());
    if (response->complete()) CHECK(response->value(0) == 3);
    return response->complete();
  };
  CHECK_FALSE(is_complete(0, 2));
  CHECK_FALSE(is_complete(1, 4));
  // It would have counted in iteration 0, and updates of that do not wait for it either.
  view.set_number(2);
  view.mutable_worker(2)->clear_incarnation();
  view.add_worker_set();
  for (const uint32_t rank : {0, 1, 2}) view.mutable_worker_set(0)->add_rank(rank);
  view.add_worker_set()->set_from_iteration(1);
  for (const uint32_t rank : {0, 1}) view.mutable_worker_set(1)->add_rank(rank);
  REQUIRE(shard->Adopt(view).ok());
  CHECK(is_complete(0, 2));
}

TEST_CASE_METHOD(AfterTheFinish,
                 "a mean is refused if a worker finished before this process came") {
  MeanRequest request;
  request.set_incarnation(Incarnation(0));
  request.add_value(3);
  REQUIRE(shard->Mean(request).ok());
  CHECK_FALSE(shard->Mean(request)->complete());
  SECTION("and has not told what the last process knew") {
    clock.Advance(absl::Seconds(11));
    CHECK_THAT(std::string(shard->Mean(request).status().message()),
               Contains("worker 1 (never joined) has finished, and takes no part in a mean"));
  }
  SECTION("unless it tells the mean") {
    MeanRequest told;
    told.set_worker(1);
    told.set_incarnation(Incarnation(1));
    told.add_value(5);
    CHECK_FALSE(shard->Mean(told).ok());  // it asks for nothing any more
    told.set_is_mean(true);
    REQUIRE(shard->Mean(told).ok());
    clock.Advance(absl::Seconds(11));
    REQUIRE(shard->Mean(request).ok());
    CHECK(shard->Mean(request)->value(0) == 5);
  }
}

TEST_CASE_METHOD(ShardFixture, "what was so before the run went back is refused afterwards") {
  Start(1, {"workers=2"});
  View view;
  view.set_number(7);
  view.set_generation(2);
  view.add_slot()->mutable_primary();
  for (const int rank : {0, 1}) view.add_worker()->set_incarnation(Incarnation(rank));
  REQUIRE(shard->Adopt(view).ok());
  MeanRequest mean;
  mean.set_incarnation(Incarnation(0));
  mean.set_is_mean(true);
  KeepStateRequest keep;
  keep.set_incarnation(Incarnation(0));
  OfferWorkerStateRequest offer;
  offer.set_incarnation(Incarnation(0));
  for (const uint64_t generation : {1, 3}) {
    mean.set_generation(generation);
    keep.set_generation(generation);
    offer.set_generation(generation);
    for (const absl::Status& refused : {shard->Mean(mean).status(), shard->KeepState(keep),
                                        shard->OfferWorkerState(offer).status()}) {
      CHECK(absl::IsUnavailable(refused));
      CHECK_THAT(
          std::string(refused.message()),
          Contains(absl::StrCat("of generation ", generation, " of the run, and slot 0 of")));
    }
  }
  mean.set_generation(2);
  keep.set_generation(2);
  offer.set_generation(2);
  CHECK(shard->Mean(mean).ok());
  CHECK(shard->KeepState(keep).ok());
  CHECK(shard->OfferWorkerState(offer).ok());
}

TEST_CASE_METHOD(AfterTheFinish, "a shard that is new waits for what finished workers registered") {
  TakeStateRequest take;
  take.set_incarnation(Incarnation(0));
  take.set_iteration(5);
  REQUIRE(shard->TakeState(take).ok());
  CHECK_FALSE(shard->TakeState(take)->complete());
  SECTION("and learns it") {
    KeepStateRequest keep;
    keep.set_worker(1);
    keep.set_incarnation(Incarnation(1));
    keep.mutable_state()->set_iteration(5);
    (*keep.mutable_state()->mutable_value())["epoch"] = "3";
    REQUIRE(shard->KeepState(keep).ok());
    REQUIRE(shard->TakeState(take).ok());
    CHECK(shard->TakeState(take)->state().value().at("epoch") == "3");
  }
  SECTION("but not for ever") {
    clock.Advance(absl::Seconds(11));
    CHECK(absl::IsUnavailable(shard->TakeState(take).status()));
  }
}

}  // namespace
}  // namespace evenshard
