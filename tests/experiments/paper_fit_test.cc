#include "experiments/paper_fit.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"

namespace ps {
namespace {

constexpr double kVgg16Bytes = 138357544.0 * 4;
constexpr double kFc6Bytes = 102764544.0 * 4;
constexpr double kPayload = 1.25e9 * 1448 / 1538;

TEST_CASE("The paper's figure for 4 workers is fitted and its figure for 8 is predicted") {
  const absl::StatusOr<PaperFit> fit = FitPaper();
  REQUIRE(fit.ok());
  REQUIRE(fit->figures.size() == 2);
  const PaperFit::Figure& four = fit->figures[0];
  CHECK(four.workers == 4);
  CHECK(four.shards == 2);
  CHECK(four.fitted);
  CHECK(four.ratio == Approx(1.20));
  CHECK(four.layer_based_seconds == Approx(2 * 4 * kFc6Bytes / kPayload));
  CHECK(four.memory_based_seconds == Approx(2 * 4 * kVgg16Bytes / 2 / kPayload));
  // "About 3 s per iteration outside of communication" (design).
  CHECK(fit->outside_seconds == Approx(3).margin(0.5));

  const PaperFit::Figure& eight = fit->figures[1];
  CHECK(eight.workers == 8);
  CHECK(eight.shards == 4);
  CHECK_FALSE(eight.fitted);
  CHECK(eight.paper_ratio == 1.66);
  CHECK(eight.ratio == Approx((fit->outside_seconds + 2 * 8 * kFc6Bytes / kPayload) /
                              (fit->outside_seconds + 2 * 8 * kVgg16Bytes / 4 / kPayload)));
  CHECK(eight.ratio == Approx(eight.paper_ratio).epsilon(0.1));
}

TEST_CASE("The fit is printed as a table and as JSON") {
  const absl::StatusOr<PaperFit> fit = FitPaper();
  REQUIRE(fit.ok());
  CHECK(absl::StrContains(PaperFitText(*fit), "fitted"));
  CHECK(absl::StrContains(PaperFitText(*fit), "1.66"));
  const auto json = nlohmann::json::parse(PaperFitJson(*fit), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  CHECK(json["outside_seconds"] == fit->outside_seconds);
  CHECK(json["figures"][1]["paper_ratio"] == 1.66);
  CHECK(json["figures"][1]["ratio"] == fit->figures[1].ratio);
}

}  // namespace
}  // namespace ps
