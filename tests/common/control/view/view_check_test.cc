#include "common/control/view/view_check.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace evenshard {
namespace {

using Catch::Contains;

// A view of two slots and three workers, with a worker set from each of `from` on.
View MakeView(const std::vector<uint64_t>& from, const std::vector<uint32_t>& ranks) {
  View view;
  view.set_number(4);
  for (int i = 0; i < 2; ++i) view.add_slot();
  for (int i = 0; i < 3; ++i) view.add_worker();
  for (const uint64_t iteration : from) {
    WorkerSet& worker_set = *view.add_worker_set();
    worker_set.set_from_iteration(iteration);
    worker_set.mutable_rank()->Add(ranks.begin(), ranks.end());
  }
  return view;
}

std::string ErrorOf(const View& view, int slots = 2, int workers = 3) {
  return std::string(CheckView(view, slots, workers).message());
}

TEST_CASE("a view has a place for each slot and each worker of the run") {
  CHECK(ErrorOf(MakeView({0}, {0, 1, 2})).empty());
  CHECK(ErrorOf(MakeView({0}, {0, 1, 2}), 1) ==
        "view 4 has 2 slots and 3 workers, allowed: 1 and 3, as in the config");
  CHECK_THAT(ErrorOf(MakeView({0}, {0, 1, 2}), 2, 4), Contains("allowed: 2 and 4"));
}

TEST_CASE("worker sets begin at iteration 0, ascend, and are of the run's workers") {
  CHECK(ErrorOf(MakeView({}, {})).empty());
  CHECK(ErrorOf(MakeView({0, 7, 8}, {1})).empty());
  CHECK(ErrorOf(MakeView({0}, {})).empty());
  for (const View& view :
       {MakeView({1}, {0}), MakeView({0, 7, 7}, {0}), MakeView({0, 7, 3}, {0}),
        MakeView({0}, {1, 0}), MakeView({0}, {1, 1}), MakeView({0, 5}, {0, 3})}) {
    CHECK_THAT(ErrorOf(view), Contains("the worker sets of view 4 make no sense, allowed: from "
                                       "iteration 0 on, ascending, with ascending ranks below 3"));
  }
}

TEST_CASE("worker sets before the last one may be of a ring with more workers") {
  View view = MakeView({0, 5}, {0, 2});
  view.mutable_worker_set(0)->add_rank(7);
  CHECK(ErrorOf(view).empty());
  view.mutable_worker_set(1)->add_rank(7);
  CHECK_THAT(ErrorOf(view), Contains("the worker sets of view 4"));
}

TEST_CASE("a view of a ring has a worker set") {
  View view = MakeView({0}, {0, 2});
  view.clear_slot();
  CHECK(ErrorOf(view, 0).empty());
  // That of a run with more workers, whose checkpoint the ring goes on from.
  view.mutable_worker_set(0)->add_rank(3);
  CHECK_THAT(ErrorOf(view, 0), Contains("the worker sets of view 4"));
  WorkerSet& last = *view.add_worker_set();
  last.set_from_iteration(5);
  last.add_rank(2);
  CHECK(ErrorOf(view, 0).empty());
  view.clear_worker_set();
  CHECK_THAT(ErrorOf(view, 0), Contains("the worker sets of view 4"));
}

}  // namespace
}  // namespace evenshard
