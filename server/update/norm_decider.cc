#include "server/update/norm_decider.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "server/update/clipping.h"

namespace evenshard {

NormDecider::NormDecider(const PlannedConfig* config)
    : config_(*config), rule_(Clipping::RuleOf(*config)), slots_(config->shards()) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    slots_[slot].takes_part = Clipping::TakesPart(*config, static_cast<int>(slot));
  }
}

void NormDecider::Adopt(uint64_t view) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    view_ = view;
    EndCalls(absl::UnavailableError(absl::StrCat("slot 0 adopts view ", view, "; try again")), due);
  }
  Send(due);
}

absl::Status NormDecider::Check(const NormReport& report) const {
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
  const auto limbs = static_cast<int>(SquareSum::Limbs().size());
  if (report.slot() >= slots_.size() || !slots_[report.slot()].takes_part ||
      (report.has_part() && report.part().limb_size() != limbs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a report of slot ", report.slot(), " with ", report.part().limb_size(),
                     " limbs, allowed: ", limbs, " limbs, of a slot of this run with parameters"));
  }
  return absl::OkStatus();
}

void NormDecider::Take(const NormReport& report, Answer answer) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    if (const absl::Status checked = Check(report); !checked.ok()) {
      due.push_back({std::move(answer), checked});
    } else {
      Slot& slot = slots_[report.slot()];
      if (slot.answer) {
        due.push_back({std::exchange(slot.answer, std::move(answer)),
                       absl::UnavailableError("the slot has reported again")});
      } else {
        slot.answer = std::move(answer);
      }
      slot.part.reset();
      if (report.has_part()) {
        SquareSum::Limbs limbs;
        std::copy_n(report.part().limb().begin(), limbs.size(), limbs.begin());
        slot.part = SquareSum(limbs);
        slot.iteration = report.part().iteration();
      }
      if (report.has_latest() &&
          (!latest_.has_value() || latest_->iteration() < report.latest().iteration())) {
        latest_ = report.latest();
      }
      Decide();
      AnswerKnown(due);
    }
  }
  Send(due);
}

void NormDecider::Decide() {
  SquareSum sum;
  std::optional<uint64_t> iteration;
  for (const Slot& slot : slots_) {
    if (!slot.takes_part) continue;
    if (!slot.part.has_value() || slot.iteration != iteration.value_or(slot.iteration)) return;
    iteration = slot.iteration;
    sum.Add(*slot.part);
  }
  // A slot that knows the result has not been told yet that there is one.
  if (!iteration.has_value() || (latest_.has_value() && latest_->iteration() >= *iteration)) return;
  latest_.emplace();
  latest_->set_iteration(*iteration);
  latest_->set_value(rule_.Value(sum));
}

void NormDecider::AnswerKnown(std::vector<Due>& due) {
  NormAnswer known;
  if (latest_.has_value()) *known.mutable_latest() = *latest_;
  absl::StatusOr<NormAnswer> result = known;
  if (latest_.has_value() && !std::isfinite(latest_->value())) {
    result = WithKind(ErrorDetail::RUN_FAILED,
                      absl::OutOfRangeError(absl::StrCat(
                          "the norm of the mean gradient of iteration ", latest_->iteration(),
                          " is too large to be clipped to update.clip_global_norm (",
                          config_.proto().update().clip_global_norm(), ")")));
  }
  // The others come before slot 0, which may be this process.
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    const bool waits =
        slot->part.has_value() && (!latest_.has_value() || latest_->iteration() < slot->iteration);
    if (slot->answer && !waits) due.push_back({std::exchange(slot->answer, nullptr), result});
  }
}

void NormDecider::EndCalls(const absl::Status& reason, std::vector<Due>& due) {
  for (Slot& slot : slots_) {
    if (slot.answer) due.push_back({std::exchange(slot.answer, nullptr), reason});
    slot.part.reset();
  }
}

void NormDecider::End(const absl::Status& reason) {
  std::vector<Due> due;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_.ok()) ended_ = reason;
    EndCalls(reason, due);
  }
  Send(due);
}

void NormDecider::Send(const std::vector<Due>& due) {
  for (const Due& call : due) call.answer(call.result);
}

}  // namespace evenshard
