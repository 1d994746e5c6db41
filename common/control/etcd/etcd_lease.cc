#include "common/control/etcd/etcd_lease.h"

#include <utility>

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

EtcdLease::EtcdLease(const Options& options)
    : options_(options),
      confirmed_(options.clock->Now()),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

EtcdLease::~EtcdLease() {
  thread_.request_stop();
  thread_.join();
  int64_t id;
  {
    absl::MutexLock lock(&mutex_);
    sure_until_ = absl::InfinitePast();
    id = has_ended_ ? 0 : id_;
  }
  if (id == 0) return;
  const absl::Status revoked = options_.client->Revoke(id, std::stop_token());
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
  const absl::Time now = options_.clock->Now();
  absl::MutexLock lock(&mutex_);
  return now < sure_until_;
}

absl::Time EtcdLease::confirmed() const {
  absl::MutexLock lock(&mutex_);
  return confirmed_;
}

absl::Status EtcdLease::trouble() const {
  absl::MutexLock lock(&mutex_);
  return trouble_;
}

void EtcdLease::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const absl::Time next = Renew(stop);
    if (HasEnded() || !options_.clock->SleepUntil(next, stop)) return;
  }
}

absl::Time EtcdLease::Renew(const std::stop_token& stop) {
  const absl::Time sent = options_.clock->Now();
  const int64_t held = id();
  int64_t granted = held;
  if (held == 0) {
    const absl::StatusOr<etcdserverpb::LeaseGrantResponse> grant =
        options_.client->Grant(options_.ttl, stop);
    if (!grant.ok()) return Failed(grant.status());
    granted = grant->id();
  } else {
    const absl::Status renewed = options_.client->KeepAlive(held, stop);
    if (!renewed.ok()) return Failed(renewed);
  }
  bool recovered = false;
  {
    absl::MutexLock lock(&mutex_);
    recovered = !trouble_.ok();
    trouble_ = absl::OkStatus();
    id_ = granted;
    confirmed_ = sent;
    sure_until_ = sent + kSure * options_.ttl;
  }
  if (recovered) spdlog::info("etcd answers again");
  if (recovered || held == 0) options_.on_change();
  return sent + kPeriod * options_.ttl;
}

absl::Time EtcdLease::Failed(const absl::Status& trouble) {
  if (absl::IsCancelled(trouble)) return absl::InfinitePast();
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
  return options_.clock->Now() + kPause;
}

}  // namespace evenshard
