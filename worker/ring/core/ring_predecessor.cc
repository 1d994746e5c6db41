#include "worker/ring/core/ring_predecessor.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/text.h"
#include "common/placement/declaration.h"
#include "common/wire/chunk_codec.h"

namespace evenshard {

size_t RingPredecessor::streams() const {
  return 2 * static_cast<size_t>(options_.config->proto().limits().connections());
}

absl::Status RingPredecessor::CheckJoin(const RingJoinRequest& join) const {
  const PlannedConfig& config = *options_.config;
  const auto differs = [&](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " has another ", what, " than worker ",
                     options_.rank, ", allowed: the same config and --set in all workers"));
  };
  if (join.protocol_version() != kProtocolVersion || join.plan_version() != kRingPlanVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " speaks version ", join.protocol_version(), ".",
                     join.plan_version(), ", and worker ", options_.rank, " ", kProtocolVersion,
                     ".", kRingPlanVersion, ", allowed: the same build everywhere"));
  }
  const std::string other = DeclarationDifference(config.declaration(), join.declaration());
  if (!other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " brings something else than worker ", options_.rank,
                     ": in worker ", options_.rank, " ", Printable(other),
                     ", allowed: the same in all workers"));
  }
  if (join.config_fingerprint() != config.fingerprint()) return differs("config");
  if (join.plan_fingerprint() != options_.plan->fingerprint()) return differs("plan");
  if (join.successor() != static_cast<uint32_t>(options_.rank) ||
      join.worker() != static_cast<uint32_t>(options_.predecessor)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " looked for worker ", join.successor(),
                     " here, and this is ", "worker ", options_.rank, ", to which worker ",
                     options_.predecessor, " passes on: the addresses in `ring` are mixed up"));
  }
  if (join.generation() != options_.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", join.worker(), " is in generation ", join.generation(),
                     " of the run, and worker ", options_.rank, " in ", options_.generation));
  }
  if (join.incarnation() == 0) return absl::InvalidArgumentError("the incarnation is 0");
  return absl::OkStatus();
}

absl::Status RingPredecessor::TakeUp(uint64_t incarnation) {
  if (incarnation_ != 0 && incarnation_ != incarnation && opened_ > 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", options_.predecessor, " has joined already, from another process"));
  }
  incarnation_ = incarnation;
  return absl::OkStatus();
}

absl::Status RingPredecessor::Check(uint32_t worker, uint64_t incarnation) const {
  if (worker == static_cast<uint32_t>(options_.predecessor) && incarnation == incarnation_ &&
      incarnation != 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", worker, " has not joined worker ", options_.rank));
}

absl::Status RingPredecessor::Open() {
  if (has_opened_all()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", options_.predecessor, " has opened its streams already"));
  }
  ++opened_;
  return absl::OkStatus();
}

absl::Status NewsOf(const RingFailure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  const std::string reason =
      failure.reason().empty()
          ? absl::StrCat("worker ", failure.worker(), " has ended the run and gives no reason")
          : Printable(failure.reason());
  return WithDifferingState(
      failure.differing_state(),
      {code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code, reason});
}

}  // namespace evenshard
