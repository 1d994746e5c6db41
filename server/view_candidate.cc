#include "server/view_candidate.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/control/etcd/etcd_link.h"
#include "spdlog/spdlog.h"

namespace evenshard {

ViewCandidate::ViewCandidate(const Options& options) : options_(options) {
  const PlannedConfig& config = *options_.config;
  const EtcdLink::Options link = EtcdLink::OptionsOf(config.proto(), options_.etcd);
  auto settings = ViewCoordinator::SettingsOf(config.proto(), config.run_fingerprint());
  settings.run = options_.run;
  // No process that is silent is noticed before its lease has ended.
  settings.recovery.set_silence_seconds(absl::ToDoubleSeconds(link.ttl));
  coordinator_ = std::make_unique<EtcdCoordinator>(EtcdCoordinator::Options{
      .etcd = link.etcd,
      .run = link.run,
      .ttl = link.ttl,
      .name = absl::StrCat("ps ", options_.process),
      .settings = settings,
      .checkpoints = config.proto().recovery().has_checkpoint() ? this : nullptr,
      .on_event = [](const RecoveryEvent& event) { spdlog::info("{}", event.what()); },
  });
}

ViewCandidate::~ViewCandidate() = default;

absl::Status ViewCandidate::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> ViewCandidate::Begin(uint64_t run,
                                                                                bool is_new) {
  checkpoints_.reset();  // a lock of this process's own would be in the way
  const RunCheckpoints::Start start = !is_new           ? RunCheckpoints::Start::kGoesOn
                                      : options_.resume ? RunCheckpoints::Start::kResumed
                                                        : RunCheckpoints::Start::kNew;
  auto opened = RunCheckpoints::Open(*options_.config, run, start,
                                     absl::StrCat("ps ", options_.process, ", process ", getpid()),
                                     options_.storage, options_.etcd->clock());
  if (opened.ok()) {
    checkpoints_ = *std::move(opened);
    return checkpoints_->resume();
  }
  // A coordinator that stands still since before the first view holds the lock until it ends.
  if (is_new && absl::IsFailedPrecondition(opened.status())) {
    const absl::Time now = options_.etcd->clock().Now();
    const double patience = options_.config->proto().limits().startup_seconds();
    tries_until_ = std::min(tries_until_, now + absl::Seconds(patience));
    if (now < tries_until_) return absl::UnavailableError(opened.status().message());
  }
  return Fail(opened.status());
}

absl::Status ViewCandidate::Hold() {
  const absl::Status held = checkpoints_->Hold();
  return held.ok() ? held : Fail(held);
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> ViewCandidate::Newest(
    bool passes_over_unreadable) {
  return checkpoints_->Newest(passes_over_unreadable);
}

absl::Status ViewCandidate::Fail(const absl::Status& reason) {
  spdlog::error("{}", std::string(reason.message()));
  {
    absl::MutexLock lock(&mutex_);
    failure_.Update(reason);
  }
  options_.request_shutdown();
  return reason;
}

}  // namespace evenshard
