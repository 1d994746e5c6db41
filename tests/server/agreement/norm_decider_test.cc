#include "server/agreement/norm_decider.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/error_kind.h"
#include "common/optimizer/norm_clipping.h"
#include "tests/server/agreement/decider_calls.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

const std::vector<std::string> kOverrides = {
    "update.clip_global_norm=1", "shard[0].address=127.0.0.1:1", "shard[1].address=127.0.0.1:2"};

class Fixture {
 public:
  AgreementReport Report(int slot, uint64_t view = 0) {
    AgreementReport report;
    report.set_config_fingerprint(config.fingerprint());
    report.set_view(view);
    report.set_slot(slot);
    return report;
  }
  // A part with this norm.
  AgreementReport Part(int slot, uint64_t iteration, float norm, uint64_t view = 0) {
    AgreementReport report = Report(slot, view);
    SquareSum sum;
    REQUIRE(rule.Add(&norm, 1, 1, &sum));
    report.mutable_part()->set_iteration(iteration);
    report.mutable_part()->mutable_limb()->Add(sum.limbs().begin(), sum.limbs().end());
    return report;
  }
  static AgreementReport Knowing(AgreementReport report, uint64_t iteration, double norm) {
    report.mutable_latest()->set_iteration(iteration);
    report.mutable_latest()->set_value(norm * norm);
    return report;
  }

  Result Take(const AgreementReport& report) { return evenshard::Take(decider, report); }
  static bool Is(const Result& result, uint64_t iteration, double norm) {
    REQUIRE(result->has_value());
    REQUIRE((*result)->ok());
    return (**result)->latest().iteration() == iteration &&
           std::sqrt((**result)->latest().value()) == Approx(norm);
  }
  static absl::Status Error(const Result& result) {
    REQUIRE(result->has_value());
    return (*result)->status();
  }

  const PlannedConfig config = MustParse(kSmallConfig, kOverrides);
  const SquareRule rule = NormRuleOf(config.proto().update().clip_global_norm(), config.model());
  NormDecider decider{&config};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "all slots get the norm of all parts") {
  const Result first = Take(Part(1, 0, 3));
  CHECK_FALSE(first->has_value());
  const Result second = Take(Part(0, 0, 4));
  CHECK(Is(first, 0, 5));
  CHECK(Is(second, 0, 5));
  // A fast slot reports the next iteration first.
  const Result next = Take(Part(0, 1, 1));
  CHECK_FALSE(next->has_value());
  CHECK(Is(Take(Part(1, 0, 100)), 0, 5));  // a slot that was taken over, with another sum
  CHECK_FALSE(next->has_value());
  Take(Part(1, 1, 0));
  CHECK(Is(next, 1, 1));
}

TEST_CASE_METHOD(Fixture, "a report in place of another one ends the first call") {
  const Result first = Take(Part(1, 0, 3));
  const Result again = Take(Part(1, 0, 3));
  CHECK(absl::IsUnavailable(Error(first)));
  Take(Part(0, 0, 4));
  CHECK(Is(again, 0, 5));
}

TEST_CASE_METHOD(Fixture,
                 "a new decider takes over what some slot knows, and decides nothing else") {
  decider.Adopt(ViewOf(7));
  const Result behind = Take(Part(1, 5, 3, 7));
  CHECK_FALSE(behind->has_value());
  SECTION("it is known already") {
    CHECK(Is(Take(Knowing(Report(0, 7), 5, 9)), 5, 9));
    CHECK(Is(behind, 5, 9));
  }
  SECTION("nobody knows it") {
    CHECK(Is(Take(Knowing(Part(0, 5, 4, 7), 4, 9)), 5, 5));
    CHECK(Is(behind, 5, 5));
  }
}

TEST_CASE_METHOD(Fixture, "a part of an earlier view counts for nothing") {
  const Result old = Take(Part(1, 0, 3));
  decider.Adopt(ViewOf(1));
  CHECK(absl::IsUnavailable(Error(old)));
  CHECK(absl::IsUnavailable(Error(Take(Part(1, 0, 3)))));
  CHECK(absl::IsUnavailable(Error(Take(Part(1, 0, 3, 2)))));
  const Result own = Take(Part(0, 0, 4, 1));
  CHECK_FALSE(own->has_value());
  Take(Part(1, 0, 30, 1));
  CHECK(Is(own, 0, std::hypot(30, 4)));
  decider.Adopt(ViewOf(2));
  CHECK(Is(Take(Part(1, 0, 1, 2)), 0, std::hypot(30, 4)));  // what was decided stays
}

TEST_CASE_METHOD(Fixture, "a report without a part is answered at once") {
  const Result result = Take(Report(1));
  REQUIRE(result->has_value());
  REQUIRE((*result)->ok());
  CHECK_FALSE((**result)->has_latest());
}

TEST_CASE_METHOD(Fixture, "what no slot of this run can report is refused") {
  CHECK(absl::IsInvalidArgument(Error(Take(Part(2, 0, 1)))));
  AgreementReport odd = Part(1, 0, 1);
  odd.mutable_part()->mutable_limb()->RemoveLast();
  CHECK(absl::IsInvalidArgument(Error(Take(odd))));
  for (const double squared : {-1.0, std::nan(""), HUGE_VAL}) {
    AgreementReport claims = Knowing(Report(1), 0, 1);
    claims.mutable_latest()->set_value(squared);
    CHECK(absl::IsInvalidArgument(Error(Take(claims))));
  }
  AgreementReport other = Part(1, 0, 1);
  other.set_config_fingerprint(1);
  CHECK(KindOf(Error(Take(other))) == ErrorDetail::RUN_FAILED);
}

TEST_CASE_METHOD(Fixture, "a slot that claims a norm that cannot be there yet is named") {
  decider.Adopt(ViewOf(7));
  Take(Knowing(Report(1, 7), 100, 9));
  const absl::Status error = Error(Take(Part(0, 5, 4, 7)));
  CHECK(KindOf(error) == ErrorDetail::RUN_FAILED);
  CHECK(error.message() ==
        "slot 1 (ps 5) claims to know the norm of the gradient of iteration 100, and slot 0 (ps 4) "
        "is at iteration 5: one of them is broken or lies");
}

TEST_CASE_METHOD(Fixture, "a slot that asks for what all have had is named") {
  for (const uint64_t iteration : {0, 1}) {
    for (const int slot : {0, 1}) Take(Part(slot, iteration, 1));
  }
  CHECK(Error(Take(Part(1, 0, 1))).message() ==
        "all slots have asked for the norm of the gradient of iteration 1, and slot 1 (ps 1) is at "
        "iteration 0: one of them is broken or lies");
}

TEST_CASE_METHOD(Fixture, "the slots that have not asked are told after a time") {
  const CapturedLog log;
  const absl::Duration patience = absl::Seconds(config.proto().limits().exchange_seconds()) / 2;
  absl::Time now = absl::UnixEpoch();
  const auto passes = [&](absl::Duration time) {
    now += time;
    decider.TellMissing(now);
  };
  passes(patience);
  for (const int slot : {0, 1}) Take(Part(slot, 0, 1));
  passes(patience);
  passes(patience);
  const Result waits = Take(Part(0, 1, 1));
  passes(absl::Seconds(1));
  Take(Part(1, 100, 1));  // which it cannot have come to
  passes(patience - absl::Seconds(1));
  CHECK(log.text().empty());
  passes(absl::Seconds(1));
  CHECK_THAT(log.text(),
             Catch::Contains("for the norm of the gradient of iteration 1, for which these "
                             "have not asked: slot 1 (ps 1)\n"));
  const std::string once = log.text();
  passes(patience - absl::Seconds(1));
  CHECK(log.text() == once);
}

TEST_CASE_METHOD(Fixture, "a norm that is too large fails the run, at all slots") {
  const Result first = Take(Part(1, 3, std::numeric_limits<float>::max()));
  const Result second = Take(Part(0, 3, 1));
  for (const Result& result : {first, second}) {
    CHECK(absl::IsOutOfRange(Error(result)));
    CHECK(KindOf(Error(result)) == ErrorDetail::RUN_FAILED);
    CHECK(Error(result).message() ==
          "the norm of the mean gradient of iteration 3 is too large to be clipped to "
          "update.clip_global_norm (1)");
  }
}

TEST_CASE_METHOD(Fixture, "the end answers those that wait, and those that come") {
  const Result waits = Take(Part(1, 0, 3));
  decider.End(absl::UnavailableError("moved"));
  CHECK(Error(waits).message() == "moved");
  CHECK(Error(Take(Part(1, 0, 3))).message() == "moved");
}

}  // namespace evenshard
