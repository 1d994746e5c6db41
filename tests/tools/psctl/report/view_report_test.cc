#include "tools/psctl/report/view_report.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

View ViewOf(uint64_t number) {
  View view;
  view.set_number(number);
  view.set_generation(2);
  view.set_checkpoint("generation-0001-iteration-0000000120");
  SlotView* slot = view.add_slot();
  slot->mutable_primary()->set_process(0);
  slot->mutable_primary()->set_address("a:1");
  slot->mutable_replica()->set_process(1);
  slot->mutable_replica()->set_address("a:2");
  *view.add_slot() = *slot;
  view.mutable_slot(1)->set_replica_is_complete(true);
  view.mutable_slot(1)->set_handing_over(true);
  view.add_slot();
  view.add_worker()->set_state(WorkerView::MEMBER);
  view.add_worker()->set_state(WorkerView::LEAVING);
  WorkerSet* worker_set = view.add_worker_set();
  worker_set->add_rank(0);
  worker_set->add_rank(1);
  view.set_worker_set_changes(true);
  return view;
}

}  // namespace

TEST_CASE("psctl view shows the newest view, and who does not follow it") {
  const ViewReport report = {ViewOf(6), ViewOf(7), absl::UnavailableError("no connection")};
  CHECK(ViewText(report) == R"(view 7, generation 2 from generation-0001-iteration-0000000120

slot  primary     replica
   0  ps 0 (a:1)  ps 1 (a:2)  fills its replica
   1  ps 0 (a:1)  ps 1 (a:2)  hands over to its replica
   2  -           -           lost

worker  state
     0  member
     1  leaving

from iteration 0 on, workers 0, 1 count
the next view changes which workers count
ps 0 follows view 6
ps 2 does not answer: no connection
)");
}

TEST_CASE("times that no clock shows are printed all the same") {
  View view = ViewOf(7);
  view.set_events(1);
  view.add_event()->set_what("worker 1 was lost");
  view.mutable_event(0)->set_unix_seconds(1e300);
  CHECK(absl::StrContains(ViewText({view}), "infinite-future UTC  worker 1 was lost\n"));
}

TEST_CASE("psctl view says that a run has no views, or that nobody answers") {
  CHECK(ViewText({View()}) == "no views: the run has no recovery, or has not begun\n");
  const ViewReport silent = {absl::UnavailableError("no connection")};
  CHECK(ViewText(silent) == "ps 0 does not answer: no connection\n");
}

TEST_CASE("psctl view as JSON") {
  const ViewReport report = {absl::UnavailableError("no connection"), ViewOf(7)};
  const auto json = nlohmann::json::parse(ViewJson(report));
  CHECK(json["view"]["number"] == "7");
  CHECK(json["view"]["slot"][0]["replica"]["process"] == 1);
  CHECK(json["view"]["worker"][1]["state"] == "LEAVING");
  CHECK(json["processes"][0]["error"] == "no connection");
  CHECK(json["processes"][1]["view"] == "7");
  CHECK(nlohmann::json::parse(ViewJson({absl::UnavailableError("x")}))["view"].is_null());
}

}  // namespace evenshard
