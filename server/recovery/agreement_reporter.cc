#include "server/recovery/agreement_reporter.h"

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"

namespace evenshard {

void AgreementReporter::Adopt(uint64_t view, const std::optional<ProcessId>& decider) {
  {
    absl::MutexLock lock(&mutex_);
    view_ = view;
    decider_ = decider;
    unreachable_since_.reset();
  }
  if (view > 0) Report();  // without views nobody takes the place of the decider
}

void AgreementReporter::Report() {
  AgreementReport report;
  ProcessId decider;
  uint64_t call;
  {
    absl::MutexLock lock(&mutex_);
    call = ++call_;
    must_retry_ = false;
    if (!decider_.has_value()) return;
    decider = *decider_;
    report = options_.subject->report();
    report.set_view(view_);
    report.set_number(call);
    reported_ = options_.subject->AskedBy(report);
  }
  options_.transport->Report(
      decider, report,
      [weak = weak_from_this(), call](const absl::StatusOr<AgreementAnswer>& answer) {
        if (const auto self = weak.lock(); self != nullptr) self->Answered(call, answer);
      });
}

void AgreementReporter::Answered(uint64_t call, const absl::StatusOr<AgreementAnswer>& answer) {
  absl::MutexLock lock(&mutex_);
  if (call != call_) return;
  if (answer.ok()) {
    unreachable_since_.reset();
    if (!reported_.has_value()) return;
    const std::optional<uint64_t> latest = options_.subject->AnsweredBy(*answer);
    if (latest != reported_) {
      return Fail(absl::InternalError(
          absl::StrCat("slot ", options_.slot, " needs ", options_.subject->what(),
                       " of iteration ", *reported_, ", and the primary of slot 0 knows ",
                       latest.has_value() ? absl::StrCat("that of iteration ", *latest) : "none")));
    }
    options_.subject->Learn(*answer);
    options_.on_known();
    return;
  }
  const absl::Status& error = answer.status();
  if (KindOf(error) == ErrorDetail::RUN_FAILED) return Fail(error);
  must_retry_ = true;
  if (absl::IsDeadlineExceeded(error)) {  // it was there, and waits for other slots
    unreachable_since_.reset();
    return;
  }
  const absl::Time now = options_.clock->Now();
  if (!unreachable_since_.has_value()) unreachable_since_ = now;
  if (now - *unreachable_since_ < options_.patience) return;
  Fail(absl::DeadlineExceededError(
      absl::StrCat("slot ", options_.slot, " could not agree with slot 0 (ps ", decider_->process(),
                   ") on ", options_.subject->what(), " for longer than limits.exchange_seconds (",
                   absl::FormatDuration(options_.patience), "): ", error.message())));
}

void AgreementReporter::Fail(const absl::Status& failure) {
  must_retry_ = false;
  failure_.Update(failure);
}

void AgreementReporter::Tick() {
  absl::Status failure;
  bool retries;
  {
    absl::MutexLock lock(&mutex_);
    failure = std::exchange(failure_, absl::OkStatus());
    retries = must_retry_;
  }
  if (!failure.ok()) options_.on_failure(failure);
  if (retries) Report();
}

void AgreementReporter::Stop() {
  absl::MutexLock lock(&mutex_);
  ++call_;
  decider_.reset();
  must_retry_ = false;
  failure_ = absl::OkStatus();
}

}  // namespace evenshard
