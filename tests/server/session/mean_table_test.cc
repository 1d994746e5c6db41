#include "server/session/mean_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

MeanRequest Request(uint32_t worker, std::vector<double> value, uint32_t number = 0,
                    uint64_t iteration = 7, const std::string& place = "train.py:40") {
  MeanRequest request;
  request.set_worker(worker);
  request.set_iteration(iteration);
  request.set_number(number);
  request.set_place(place);
  request.mutable_value()->Add(value.begin(), value.end());
  return request;
}

struct Table {
  MeanResponse Ask(const MeanRequest& request) {
    const absl::StatusOr<MeanResponse> response = means.Ask(request, ranks, have_finished);
    if (!response.ok()) FAIL(response.status().message());
    return *response;
  }
  std::string ErrorOf(const MeanRequest& request) {
    const absl::StatusOr<MeanResponse> response = means.Ask(request, ranks, have_finished);
    return response.ok() ? "no error" : std::string(response.status().message());
  }
  static std::vector<double> Of(const MeanResponse& response) {
    return {response.value().begin(), response.value().end()};
  }

  RealClock clock;
  Membership membership{3, absl::ZeroDuration(), &clock};
  MeanTable means{&membership};
  std::vector<uint32_t> ranks{0, 1, 2};
  std::set<uint32_t> have_finished;
};

TEST_CASE("a mean is there when all workers have given a value, and for whoever asks again") {
  Table table;
  const MeanResponse first = table.Ask(Request(2, {1, 30}));
  CHECK_FALSE(first.complete());
  CHECK(std::vector<uint32_t>(first.missing().begin(), first.missing().end()) ==
        std::vector<uint32_t>{0, 1});
  CHECK_FALSE(table.Ask(Request(0, {2, 60})).complete());
  CHECK_FALSE(table.Ask(Request(2, {1, 30})).complete());
  for (const uint32_t rank : {1u, 0u, 2u, 1u}) {
    const MeanResponse response = table.Ask(Request(rank, {6, 90}));
    CHECK(response.complete());
    CHECK(Table::Of(response) == std::vector<double>{3, 60});
  }
}

TEST_CASE("who waits in a mean for a worker that is past it is told") {
  Table table;
  CHECK(table.means.WaitsFor(1, 7).empty());
  table.Ask(Request(0, {2}));
  table.Ask(Request(2, {3}));
  CHECK(table.means.WaitsFor(1, 7) == "worker 0 at train.py:40");
  CHECK(table.means.WaitsFor(0, 7).empty());
  CHECK(table.means.WaitsFor(1, 6).empty());
  CHECK(table.Ask(Request(1, {4})).complete());
  CHECK(table.means.WaitsFor(1, 7).empty());
}

TEST_CASE("means are apart by iteration and number, and one without values is a barrier") {
  Table table;
  table.ranks = {0, 1};
  CHECK_FALSE(table.Ask(Request(0, {}, 0)).complete());
  CHECK_FALSE(table.Ask(Request(1, {}, 1)).complete());
  CHECK_FALSE(table.Ask(Request(1, {}, 0, 8)).complete());
  CHECK(table.Ask(Request(1, {}, 0)).complete());
}

TEST_CASE("workers that are lost for good are not waited for, and do not count") {
  Table table;
  CHECK_FALSE(table.Ask(Request(0, {1})).complete());
  CHECK_FALSE(table.Ask(Request(1, {100})).complete());
  table.ranks = {0, 2};
  CHECK(Table::Of(table.Ask(Request(2, {3}))) == std::vector<double>{2});
}

TEST_CASE("a mean that another process has answered with is told to this one") {
  Table table;
  CHECK_FALSE(table.Ask(Request(0, {1})).complete());
  MeanRequest known = Request(2, {42});
  known.set_is_mean(true);
  CHECK(table.Ask(known).complete());
  CHECK(Table::Of(table.Ask(Request(0, {1}))) == std::vector<double>{42});
}

TEST_CASE("workers at different lines, with other sizes, or that have finished are refused") {
  Table table;
  CHECK_FALSE(table.Ask(Request(0, {1})).complete());
  CHECK_THAT(table.ErrorOf(Request(1, {1}, 0, 7, "train.py:9\n")),
             Contains("worker 1 asks for a mean of 1 values at train.py:9\\n, and worker 0 of 1 "
                      "values at train.py:40; allowed: the same calls"));
  CHECK_THAT(table.ErrorOf(Request(1, {})), Contains("a mean of no value at train.py:40, and"));
  CHECK_THAT(table.ErrorOf(Request(1, std::vector<double>(4097))),
             Contains("4097 values; allowed: at most 4096"));
  REQUIRE(table.membership.Join(2, 5, "here").ok());
  REQUIRE(table.membership.Leave(2, 5, /*failed=*/false).ok());
  table.have_finished = {2};
  CHECK_THAT(table.ErrorOf(Request(0, {1})),
             Contains("worker 2 (here, left") && Contains("has finished, and takes no part"));
}

TEST_CASE("a table does not grow for ever") {
  Table table;
  table.ranks = {0};
  for (uint32_t number = 0; number < 2000; ++number) table.Ask(Request(0, {1}, number));
  CHECK(Table::Of(table.Ask(Request(0, {5}, 1999))) == std::vector<double>{1});
  // The oldest are forgotten, and nothing older is taken.
  for (uint32_t number = 0; number < 900; ++number) {
    CHECK_THAT(table.ErrorOf(Request(0, {5}, number)), Contains("older than the 1024"));
  }
  CHECK_THAT(table.ErrorOf(Request(0, {5}, 2000, 7, std::string(5000, 'x'))),
             Contains("the place of a mean has 5000 bytes; allowed: at most 4096"));
}

}  // namespace
}  // namespace evenshard
