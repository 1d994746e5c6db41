#include "server/agreement/agreement_decider.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace evenshard {

AgreementDecider::AgreementDecider(const PlannedConfig* config, const std::vector<bool>& takes_part,
                                   absl::string_view what)
    : config_(*config), takes_part_(takes_part), what_(what), slots_(takes_part.size()) {
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].process = static_cast<uint32_t>(i);
}

void AgreementDecider::Adopt(const View& view) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    view_ = view.number();
    EndCalls(absl::UnavailableError(absl::StrCat("slot 0 adopts view ", view_, "; try again")),
             due);
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].number = 0;
      slots_[i].process = view.slot(static_cast<int>(i)).primary().process();
    }
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
      const std::optional<uint64_t> before = latest_iteration();
      slot.asked = TakeContent(report);
      if (latest_iteration() != before) claimed_by_ = report.slot();
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
    if (latest_iteration() == asked) claimed_by_.reset();
  }
  const std::optional<uint64_t> latest = latest_iteration();
  // The others come before slot 0, which may be this process.
  for (size_t i = slots_.size(); i-- > 0;) {
    Slot& slot = slots_[i];
    const bool waits = slot.asked.has_value() && (!latest.has_value() || *latest < *slot.asked);
    if (slot.answer && !waits) due.push_back({std::exchange(slot.answer, nullptr), ResultFor(i)});
  }
}

std::string AgreementDecider::NameOf(size_t slot) const {
  return absl::StrCat("slot ", slot, " (ps ", slots_[slot].process, ")");
}

absl::StatusOr<AgreementAnswer> AgreementDecider::ResultFor(size_t slot) const {
  const std::optional<uint64_t>& asked = slots_[slot].asked;
  if (!asked.has_value() || *latest_iteration() == *asked) return Known();
  return WithKind(
      ErrorDetail::RUN_FAILED,
      absl::InternalError(absl::StrCat(
          claimed_by_.has_value() ? absl::StrCat(NameOf(*claimed_by_), " claims to know ")
                                  : "all slots have asked for ",
          what_, " of iteration ", *latest_iteration(), ", and ", NameOf(slot), " is at iteration ",
          *asked, ": one of them is broken or lies")));
}

void AgreementDecider::TellMissing(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  std::optional<uint64_t> awaited;
  for (const Slot& slot : slots_) {
    if (slot.answer) awaited = std::min(awaited.value_or(*slot.asked), *slot.asked);
  }
  if (std::exchange(awaited_, awaited) != awaited) awaited_since_ = now;
  const absl::Duration patience = absl::Seconds(config_.proto().limits().exchange_seconds()) / 2;
  if (!awaited.has_value() || now - awaited_since_ < patience) return;
  awaited_since_ = now;
  std::vector<std::string> missing;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (takes_part_[i] && slots_[i].asked != awaited) missing.push_back(NameOf(i));
  }
  if (missing.empty()) return;
  spdlog::warn(
      "other slots have waited {} (half of limits.exchange_seconds) for {} of iteration {}, for "
      "which these have not asked: {}",
      absl::FormatDuration(patience), std::string(what_), *awaited, absl::StrJoin(missing, ", "));
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
