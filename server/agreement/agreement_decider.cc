#include "server/agreement/agreement_decider.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"

namespace evenshard {

AgreementDecider::AgreementDecider(const PlannedConfig* config, const std::vector<bool>& takes_part)
    : config_(*config), takes_part_(takes_part), slots_(takes_part.size()) {}

void AgreementDecider::Adopt(uint64_t view) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    view_ = view;
    EndCalls(absl::UnavailableError(absl::StrCat("slot 0 adopts view ", view, "; try again")), due);
    for (Slot& slot : slots_) slot.number = 0;
    Forget();
  }
  Send(due);
}

absl::Status AgreementDecider::Check(const AgreementReport& report) const {
  RETURN_IF_ERROR(ended_);
  if (report.config_fingerprint() != config_.fingerprint()) {
    return WithKind(ErrorDetail::RUN_FAILED,
                    absl::FailedPreconditionError(absl::StrCat(
                        "the primary of slot ", report.slot(), " has another config")));
  }
  if (report.view() != view_) {
    return absl::UnavailableError(absl::StrCat("the primary of slot ", report.slot(),
                                               " follows view ", report.view(), ", that of slot 0 ",
                                               "view ", view_, "; try again"));
  }
  if (report.slot() >= slots_.size() || !takes_part_[report.slot()]) {
    return absl::InvalidArgumentError(absl::StrCat("a report of slot ", report.slot(),
                                                   ", allowed: of a slot of this run with "
                                                   "parameters"));
  }
  RETURN_IF_ERROR(CheckContent(report));
  if (report.number() < slots_[report.slot()].number) {
    return absl::UnavailableError("the slot has reported again");
  }
  return absl::OkStatus();
}

void AgreementDecider::Take(const AgreementReport& report, Answer answer) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    if (const absl::Status checked = Check(report); !checked.ok()) {
      due.push_back({std::move(answer), checked});
    } else {
      Slot& slot = slots_[report.slot()];
      if (slot.answer) {
        due.push_back(
            {std::move(slot.answer), absl::UnavailableError("the slot has reported again")});
      }
      slot.answer = std::move(answer);
      slot.number = report.number();
      slot.asked = TakeContent(report);
      DecideAndAnswer(due);
    }
  }
  Send(due);
}

void AgreementDecider::DecideAgain() {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    DecideAndAnswer(due);
  }
  Send(due);
}

std::optional<uint64_t> AgreementDecider::AskedByAll() const {
  std::optional<uint64_t> iteration;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!takes_part_[i]) continue;
    const std::optional<uint64_t>& asked = slots_[i].asked;
    if (!asked.has_value() || *asked != iteration.value_or(*asked)) return std::nullopt;
    iteration = asked;
  }
  return iteration;
}

void AgreementDecider::DecideAndAnswer(std::vector<Due>& due) {
  // A slot that knows the result has not been told yet that there is one.
  const std::optional<uint64_t> asked = AskedByAll();
  if (asked.has_value() && (!latest_iteration().has_value() || *latest_iteration() < *asked)) {
    Decide(*asked);
  }
  const std::optional<uint64_t> latest = latest_iteration();
  // The others come before slot 0, which may be this process.
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    const bool waits = slot->asked.has_value() && (!latest.has_value() || *latest < *slot->asked);
    if (slot->answer && !waits) due.push_back({std::exchange(slot->answer, nullptr), Known()});
  }
}

void AgreementDecider::EndCalls(const absl::Status& reason, std::vector<Due>& due) {
  for (Slot& slot : slots_) {
    if (slot.answer) due.push_back({std::exchange(slot.answer, nullptr), reason});
    slot.asked.reset();
  }
}

void AgreementDecider::End(const absl::Status& reason) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_.ok()) ended_ = reason;
    EndCalls(reason, due);
  }
  Send(due);
}

void AgreementDecider::Send(const std::vector<Due>& due) {
  for (const Due& call : due) call.answer(call.result);
}

}  // namespace evenshard
