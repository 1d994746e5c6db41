#include "server/agreement/norm_decider.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/norm_clipping.h"
#include "server/agreement/agreed.h"
#include "server/agreement/clipping.h"

namespace evenshard {
namespace {

std::vector<bool> TakesPart(const PlannedConfig& config) {
  std::vector<bool> takes_part;
  for (int slot = 0; slot < config.shards(); ++slot) {
    takes_part.push_back(Clipping::TakesPart(config, slot));
  }
  return takes_part;
}

}  // namespace

NormDecider::NormDecider(const PlannedConfig* config)
    : AgreementDecider(config, TakesPart(*config), kAgreedNorm),
      rule_(NormRuleOf(config->proto().update().clip_global_norm(), config->model())),
      parts_(config->shards()) {}

absl::Status NormDecider::CheckContent(const AgreementReport& report) const {
  const auto limbs = static_cast<int>(SquareSum::Limbs().size());
  if (report.has_latest() && !IsNorm(report.latest().value())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a report of slot ", report.slot(), " with the squared norm ",
                     report.latest().value(), ", allowed: a finite one from 0"));
  }
  if (!report.has_part() || report.part().limb_size() == limbs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a report of slot ", report.slot(), " with ",
                                                 report.part().limb_size(),
                                                 " limbs, allowed: ", limbs, " limbs"));
}

std::optional<uint64_t> NormDecider::TakeContent(const AgreementReport& report) {
  if (report.has_latest() &&
      (!latest_.has_value() || latest_->iteration() < report.latest().iteration())) {
    latest_ = report.latest();
  }
  if (!report.has_part()) return std::nullopt;
  SquareSum::Limbs limbs;
  std::copy_n(report.part().limb().begin(), limbs.size(), limbs.begin());
  parts_[report.slot()] = SquareSum(limbs);
  return report.part().iteration();
}

void NormDecider::Decide(uint64_t iteration) {
  SquareSum sum;
  for (size_t slot = 0; slot < parts_.size(); ++slot) {
    if (takes_part(slot)) sum.Add(parts_[slot]);
  }
  latest_.emplace();
  latest_->set_iteration(iteration);
  latest_->set_value(rule_.Value(sum));
}

std::optional<uint64_t> NormDecider::latest_iteration() const {
  return latest_.has_value() ? std::optional(latest_->iteration()) : std::nullopt;
}

absl::StatusOr<AgreementAnswer> NormDecider::Known() const {
  AgreementAnswer known;
  if (!latest_.has_value()) return known;
  RETURN_IF_ERROR(CheckNorm(config_.proto().update().clip_global_norm(), latest_->iteration(),
                            latest_->value()));
  *known.mutable_latest() = *latest_;
  return known;
}

}  // namespace evenshard
