#include "server/recovery/agreement_reporter.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error_kind.h"
#include "tests/server/update/policy_fixture.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

class Fixture : private AgreementTransport, protected PolicyFixture {
 public:
  struct Call {
    ProcessId decider;
    AgreementReport report;
    AgreementDecider::Answer answer;
  };

  Fixture() {
    Start(1, {"update.clip_global_norm=2"});
    reporter = std::make_shared<AgreementReporter>(AgreementReporter::Options{
        .slot = 0,
        .subject = clipping.get(),
        .transport = this,
        .clock = &clock,
        .patience = absl::Seconds(10),
        .on_known = [this] { ++norms; },
        .on_failure = [this](const absl::Status& status) { failure = status; }});
  }

  void Report(const ProcessId& decider, const AgreementReport& report,
              AgreementDecider::Answer answer) override {
    calls.push_back({decider, report, std::move(answer)});
  }
  // All gradients of an iteration come, and the part is reported.
  void Gradients(uint64_t iteration) {
    for (const int index : {0, 1}) REQUIRE(Push(0, iteration, 1, index).ok());
    reporter->Report();
  }
  static ProcessId Process(int index) {
    ProcessId process;
    process.set_process(index);
    return process;
  }
  static AgreementAnswer Norm(uint64_t iteration, double squared) {
    AgreementAnswer answer;
    answer.mutable_latest()->set_iteration(iteration);
    answer.mutable_latest()->set_value(squared);
    return answer;
  }

  std::shared_ptr<AgreementReporter> reporter;
  std::vector<Call> calls;
  int norms = 0;
  absl::Status failure;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "the norm is learned from the answer") {
  reporter->Adopt(0, Process(0));
  CHECK(calls.empty());
  Gradients(0);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].report.part().iteration() == 0);
  calls[0].answer(Norm(0, 25));
  CHECK(norms == 1);
  CHECK(store->agreed_norm()->squared == 25);
  calls[0].answer(Norm(0, 36));  // nothing but noise
  reporter->Tick();
  CHECK(calls.size() == 1);
}

TEST_CASE_METHOD(Fixture, "in each view the reporter says what it knows, also without a part") {
  store->Learn(AgreedNorm{.iteration = 4, .squared = 9});
  reporter->Adopt(3, Process(1));
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].decider.process() == 1);
  CHECK(calls[0].report.view() == 3);
  CHECK(calls[0].report.latest().iteration() == 4);
  CHECK(calls[0].report.latest().value() == 9);
  CHECK_FALSE(calls[0].report.has_part());
  calls[0].answer(Norm(5, 1));  // which it will ask for when it has a part
  CHECK(norms == 0);
  CHECK(store->agreed_norm()->iteration == 4);
  CHECK(failure.ok());
}

TEST_CASE_METHOD(Fixture, "an answer of an earlier view counts for nothing") {
  reporter->Adopt(1, Process(0));
  Gradients(0);
  const Call old = calls.back();
  reporter->Adopt(2, Process(1));
  REQUIRE(calls.size() == 3);
  CHECK(calls[2].report.view() == 2);
  CHECK(calls[2].report.part().iteration() == 0);
  old.answer(Norm(0, 25));
  CHECK_FALSE(store->agreed_norm().has_value());
  calls[2].answer(Norm(0, 36));
  CHECK(store->agreed_norm()->squared == 36);
}

TEST_CASE_METHOD(Fixture, "a report that fails is repeated, and a lost decider fails the run") {
  reporter->Adopt(0, Process(0));
  Gradients(0);
  calls.back().answer(absl::UnavailableError("connection refused"));
  CHECK(calls.size() == 1);
  reporter->Tick();
  REQUIRE(calls.size() == 2);
  clock.Advance(absl::Seconds(9));
  SECTION("it was there meanwhile, and waits for others") {
    calls.back().answer(absl::DeadlineExceededError("deadline"));
    clock.Advance(absl::Seconds(9));
    reporter->Tick();
    calls.back().answer(absl::UnavailableError("connection refused"));
    reporter->Tick();
    CHECK(failure.ok());
  }
  SECTION("it never comes back") {
    calls.back().answer(absl::UnavailableError("connection refused"));
    reporter->Tick();
    CHECK(failure.ok());
    clock.Advance(absl::Seconds(2));
    calls.back().answer(absl::UnavailableError("connection refused"));
    const size_t before = calls.size();
    reporter->Tick();
    CHECK(calls.size() == before);
    CHECK(failure.message() ==
          "slot 0 could not agree with slot 0 (ps 0) on the norm of the gradient for longer than "
          "limits.exchange_seconds (10s): connection refused");
  }
}

TEST_CASE_METHOD(Fixture, "without a decider in the view nothing is reported, without a limit") {
  reporter->Adopt(1, std::nullopt);
  Gradients(0);
  clock.Advance(absl::Hours(1));
  reporter->Tick();
  CHECK(calls.empty());
  CHECK(failure.ok());
  reporter->Adopt(2, Process(0));
  CHECK(calls.size() == 1);
}

TEST_CASE_METHOD(Fixture, "the failure of the run, or a norm of another iteration, ends it") {
  reporter->Adopt(0, Process(0));
  Gradients(0);
  SECTION("a failure") {
    calls.back().answer(
        WithKind(ErrorDetail::RUN_FAILED, absl::OutOfRangeError("the norm is too large")));
    reporter->Tick();
    CHECK(failure.message() == "the norm is too large");
  }
  SECTION("another iteration") {
    calls.back().answer(Norm(7, 1));
    reporter->Tick();
    CHECK(absl::IsInternal(failure));
    CHECK_FALSE(store->agreed_norm().has_value());
  }
  CHECK(calls.size() == 1);
}

TEST_CASE_METHOD(Fixture, "nothing follows a stop, and an answer may outlive the reporter") {
  reporter->Adopt(0, Process(0));
  Gradients(0);
  reporter->Stop();
  if (GENERATE(false, true)) reporter.reset();
  calls.back().answer(Norm(0, 25));
  CHECK(norms == 0);
}

}  // namespace evenshard
