// Processes that the coordinator hears, and that cannot reach each other.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/control/view/coordinator_run.h"

namespace evenshard {
namespace {

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a replica that its primary cannot reach is dropped, and filled anew later") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1*");
  run.Events();
  run.cut = {{0, 1}};
  run.Pass(absl::Seconds(4.9));
  CHECK(run.Slots() == "0:1*");
  run.Pass(absl::Seconds(0.5));
  CHECK(run.Slots() == "0:-");
  const Texts events = run.Events();
  REQUIRE(events.size() == 1);
  CHECK_THAT(events[0],
             Catch::Matchers::StartsWith("ps 0 cannot reach ps 1; slot 0 has no replica now (5."));
  run.cut.clear();
  run.Pass(absl::Seconds(19));
  CHECK(run.Slots() == "0:-");
  run.fills = false;
  run.Pass(absl::Seconds(1));
  CHECK(run.Slots() == "0:1");
  run.fills = true;
  run.Pass(absl::Seconds(1));
  CHECK(run.Slots() == "0:1*");
  CHECK(run.coordinator->view().generation() == 1);
}

TEST_CASE("a replica that stays out of reach is tried ever more rarely") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  run.cut = {{0, 1}};
  std::vector<int> dropped;  // after so many seconds
  bool had = true;
  for (int second = 0; second < 3600; ++second) {
    run.Pass(absl::Seconds(1));
    const bool has = run.coordinator->view().slot(0).has_replica();
    if (had && !has) dropped.push_back(second);
    had = has;
  }
  CHECK(dropped.size() == 10);
  REQUIRE(dropped.size() > 3);
  CHECK(dropped[1] - dropped[0] < 30);
  CHECK(dropped[3] - dropped[2] > 80);
  // It is tried at once when it has been started again.
  run.cut.clear();
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  CHECK(run.Slots() == "0:1*");
}

TEST_CASE("another process gets the replica that its holder cannot be reached for") {
  CoordinatorRun run(Settings(2, 1, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:2*");
  run.cut = {{0, 1}};
  run.Pass(absl::Seconds(6));
  CHECK(run.Slots() == "0:2* 1:2*");
}

TEST_CASE("only what a primary says of the present view counts against its replica") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  ProcessState report = run.PsState(0);
  report.add_unreachable(0);
  const auto say = [&] {
    for (int i = 0; i < 100; ++i) {
      run.now += absl::Milliseconds(100);
      REQUIRE(run.Announce(report).ok());
      run.coordinator->Tick(run.now);
    }
  };
  SECTION("and not of an earlier one") {
    run.StartWorker(0);  // another view
    REQUIRE(report.view() < run.coordinator->view().number());
    say();
    CHECK(run.Slots() == "0:1*");
  }
  SECTION("and not of a replica that does not follow the view yet") {
    run.StartWorker(0);
    report.set_view(run.coordinator->view().number());
    say();
    CHECK(run.Slots() == "0:1*");
    REQUIRE(run.Announce(run.PsState(1)).ok());
    say();
    CHECK(run.Slots() == "0:-");
  }
  SECTION("and not when the primary is gone by then") {
    run.cut = {{0, 1}};
    run.Pass(absl::Seconds(4.9));
    run.KillPs(0);
    CHECK(run.Slots() == "1:-");
    CHECK_FALSE(run.Announce(report).ok());
    run.Pass(absl::Seconds(10));
    CHECK(run.Slots() == "1:-");
  }
}

TEST_CASE("a primary that reaches its replica again keeps it") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  for (int i = 0; i < 10; ++i) {
    run.cut = {{0, 1}};
    run.Pass(absl::Seconds(4));
    run.cut.clear();
    run.Pass(absl::Seconds(1));
  }
  CHECK(run.Slots() == "0:1*");
}

TEST_CASE("a slot is not handed over to a replica that is out of reach") {
  CoordinatorRun run(Settings(2, 0, 1));
  run.StartAll();
  run.hands_over = false;
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  CHECK(run.Slots() == "0:1* 0>1*");
  run.cut = {{0, 1}};
  run.Pass(absl::Seconds(6));
  CHECK(run.Slots() == "0:- 0:-");
  run.cut.clear();
  run.hands_over = true;
  run.Pass(absl::Seconds(30));
  CHECK(run.Slots() == "0:1* 1:0*");
}

}  // namespace evenshard
