// Tests the part of a config that concerns stale gradients.

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/config/asynchrony.h"
#include "common/config/optimizer_arrays.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

ClusterConfig WithUpdate(const std::string& update, const std::string& optimizer = "kind: ADAM") {
  return Valid(kConfig, {"update={" + update + "}", "optimizer={" + optimizer + "}"}).proto();
}

TEST_CASE("what becomes of stale gradients is said only where there are some") {
  CHECK(ErrorWith("policy: SYNC", "policy: SYNC asynchrony { rate: CONSTANT }") ==
        "f:11: update.asynchrony: has no effect with SYNC, allowed: only with ASYNC, and SSP with "
        "staleness above 0");
  CHECK(
      ErrorWith("policy: SYNC", "policy: ASYNC asynchrony { velocity: SHARED }") ==
      "f:11: update.asynchrony.velocity: is SHARED, allowed: only with optimizer.kind MOMENTUM and "
      "NESTEROV, whose state is a velocity");
  CHECK(ErrorWith("policy: SYNC", "policy: ASYNC asynchrony { rate: SLOW }") ==
        "f:11: update.asynchrony.rate: is SLOW, allowed: BY_STALENESS, CONSTANT");
}

TEST_CASE("training that is known to diverge is warned of") {
  const auto warning = [](const std::string& update, const std::string& optimizer) {
    return AsynchronyWarning(
        Valid(kConfig, {"update={" + update + "}", "optimizer={" + optimizer + "}"}).proto());
  };
  const std::string constant = "policy: ASYNC asynchrony { rate: CONSTANT }";
  CHECK_THAT(warning(constant, "kind: ADAM"),
             Catch::Contains("is CONSTANT with ADAM and 2 workers"));
  CHECK(warning(constant, "kind: SGD").empty());
  CHECK(warning("policy: ASYNC", "kind: ADAM").empty());
  CHECK(warning("policy: SYNC", "kind: ADAM").empty());
}

TEST_CASE("lambda is of a correction that has one") {
  for (const std::string correction : {"", "correction: NONE ", "correction: GAP_AWARE "}) {
    CHECK_THAT(
        ErrorWith("policy: SYNC", "policy: ASYNC asynchrony { " + correction + "lambda: 1 }"),
        Catch::Contains("f:11: update.asynchrony.lambda: has no effect with ") &&
            Catch::Contains("allowed: only with DELAY_COMPENSATION and "
                            "ADAPTIVE_DELAY_COMPENSATION"));
  }
  for (const std::string lambda : {"0", "-1", "nan", "inf"}) {
    CHECK(ErrorWith("policy: SYNC",
                    "policy: ASYNC asynchrony { correction: DELAY_COMPENSATION "
                    "lambda: " +
                        lambda + " }") ==
          "f:11: update.asynchrony.lambda: is " + lambda + ", allowed: a number above 0");
  }
  CHECK(ErrorWith("policy: SYNC", "policy: ASYNC asynchrony { correction: OFF }") ==
        "f:11: update.asynchrony.correction: is OFF, allowed: NONE, DELAY_COMPENSATION, "
        "ADAPTIVE_DELAY_COMPENSATION, GAP_AWARE");
  const auto lambda = [](const std::string& asynchrony) {
    return LambdaOf(
        WithUpdate("policy: ASYNC asynchrony { " + asynchrony + " }").update().asynchrony());
  };
  CHECK(lambda("correction: DELAY_COMPENSATION") == 0.04f);
  CHECK(lambda("correction: ADAPTIVE_DELAY_COMPENSATION") == 2);
  CHECK(lambda("correction: ADAPTIVE_DELAY_COMPENSATION lambda: 0.5") == 0.5f);
  CHECK(lambda("correction: GAP_AWARE") == 0);
}

TEST_CASE("what several steps have changed is no gradient to correct") {
  const std::string local = "local={steps: 8 optimizer {kind: ADAMW}}";
  CHECK_THAT(ErrorOf(kConfig, {"update={policy: ASYNC asynchrony {correction: GAP_AWARE}}", local}),
             Catch::Contains("update.asynchrony.correction: is GAP_AWARE with local, where workers "
                             "push what several steps have changed and no gradient, allowed: "
                             "NONE"));
}

TEST_CASE("GAP_AWARE takes the place of a smaller rate, unless both are asked for") {
  const auto with = [](const std::string& asynchrony) {
    return WithUpdate("policy: SSP staleness: 1 asynchrony { correction: " + asynchrony + " }");
  };
  CHECK_FALSE(DividesByStaleness(with("GAP_AWARE")));
  CHECK(AsynchronyWarning(with("GAP_AWARE")).empty());
  CHECK(DividesByStaleness(with("GAP_AWARE rate: BY_STALENESS")));
  CHECK(DividesByStaleness(with("NONE")));
  CHECK(DividesByStaleness(with("DELAY_COMPENSATION")));
  CHECK(AsynchronyWarning(with("DELAY_COMPENSATION rate: CONSTANT")) != "");
}

TEST_CASE("shards have arrays for a correction, and with one worker none") {
  const auto arrays = [](const std::string& correction, const std::string& optimizer) {
    const ClusterConfig config =
        WithUpdate("policy: ASYNC asynchrony { correction: " + correction + " }", optimizer);
    return std::pair(StateArrays(config), SentArrays(config));
  };
  CHECK(arrays("NONE", "kind: SGD") == std::pair(0, 0));
  CHECK(arrays("DELAY_COMPENSATION", "kind: SGD") == std::pair(0, 2));
  CHECK(arrays("ADAPTIVE_DELAY_COMPENSATION", "kind: ADAM") == std::pair(3, 2));
  CHECK(arrays("GAP_AWARE", "kind: MOMENTUM") == std::pair(3, 2));
  const ClusterConfig alone =
      Valid(kConfig, {"update={policy: ASYNC asynchrony {correction: GAP_AWARE}}", "workers=1"})
          .proto();
  CHECK(CorrectionOf(alone) == Asynchrony::NONE);
  CHECK(SentArrays(alone) == 0);
}

}  // namespace
}  // namespace evenshard
