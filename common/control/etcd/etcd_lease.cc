#include "common/control/etcd/etcd_lease.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// The time for which a confirmed lease counts as sure, as a part of its TTL. The rest is for clocks
// that run at different rates.
constexpr double kSure = 0.75;
// Renewals are this part of the TTL apart. Three may fail before the lease is no longer sure.
constexpr double kPeriod = 0.2;
// The pause after a failure, which is short against the shortest TTL.
constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

absl::Duration EtcdLease::TtlOf(const Recovery& recovery) {
  return std::max(absl::Ceil(absl::Seconds(recovery.silence_seconds()), absl::Seconds(1)),
                  kShortestTtl);
}

EtcdLease::EtcdLease(const Options& options)
    : options_(options),
      confirmed_(options.etcd->clock().Now()),
      runner_(options.etcd->MakeRunner(this)) {
  runner_->Start();
}

EtcdLease::~EtcdLease() {
  runner_->Stop();
  int64_t id;
  {
    absl::MutexLock lock(&mutex_);
    sure_until_ = absl::InfinitePast();
    id = has_ended_ ? 0 : id_;
  }
  if (id == 0) return;
  const absl::Status revoked = options_.etcd->Revoke(id);
  if (!revoked.ok()) {
    spdlog::info("{}; the lease ends by itself within {}", std::string(revoked.message()),
                 absl::FormatDuration(options_.ttl));
  }
}

int64_t EtcdLease::id() const {
  absl::MutexLock lock(&mutex_);
  return id_;
}

bool EtcdLease::HasEnded() const {
  absl::MutexLock lock(&mutex_);
  return has_ended_;
}

bool EtcdLease::Surely() const {
  absl::MutexLock lock(&mutex_);
  return options_.etcd->clock().Now() < sure_until_;
}

absl::Time EtcdLease::confirmed() const {
  absl::MutexLock lock(&mutex_);
  return confirmed_;
}

absl::Status EtcdLease::trouble() const {
  absl::MutexLock lock(&mutex_);
  return trouble_;
}

EtcdMachine::Step EtcdLease::Next(absl::Time now) {
  if (HasEnded()) return absl::InfiniteFuture();
  if (now < next_) return next_;
  sent_ = now;
  return EtcdLeaseRequest{.id = id(), .ttl = options_.ttl};
}

void EtcdLease::Answered(const EtcdAnswer& answer, absl::Time now) {
  if (!answer.ok()) return Failed(answer.status(), now);
  next_ = sent_ + kPeriod * options_.ttl;
  bool recovered = false;
  bool is_new = false;
  {
    absl::MutexLock lock(&mutex_);
    recovered = !std::exchange(trouble_, absl::OkStatus()).ok();
    is_new = std::exchange(id_, std::get<int64_t>(*answer)) == 0;
    confirmed_ = sent_;
    sure_until_ = sent_ + kSure * options_.ttl;
  }
  if (recovered) spdlog::info("etcd answers again");
  if (recovered || is_new) options_.on_change();
}

void EtcdLease::Failed(const absl::Status& trouble, absl::Time now) {
  next_ = now + kPause;
  bool is_first = false;
  {
    absl::MutexLock lock(&mutex_);
    is_first = std::exchange(trouble_, trouble).ok();
    if (absl::IsNotFound(trouble)) {
      has_ended_ = true;
      sure_until_ = absl::InfinitePast();
    }
  }
  if (is_first && !absl::IsNotFound(trouble)) {
    spdlog::warn("{}; trying again", std::string(trouble.message()));
  }
  options_.on_change();
}

}  // namespace evenshard
