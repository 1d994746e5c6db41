#include "common/control/etcd/etcd_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often the link looks whether its place is free, etcd is back, or has been away for too long.
constexpr absl::Duration kPeriod = absl::Milliseconds(200);

// A lease of another process that has died may be extended once, by a change of etcd's leader, and
// etcd notices its end a little later.
absl::Duration LongestLease(absl::Duration ttl) { return 2 * ttl + absl::Seconds(2); }

}  // namespace

EtcdLink::Options EtcdLink::OptionsOf(const ClusterConfig& config, const Clock* clock) {
  const Recovery& recovery = config.recovery();
  const absl::Duration ttl =
      std::max(absl::Ceil(absl::Seconds(recovery.silence_seconds()), absl::Seconds(1)),
               EtcdLease::kShortestTtl);
  return {.client = {.endpoints = {recovery.etcd().endpoint().begin(),
                                   recovery.etcd().endpoint().end()},
                     .timeout = std::clamp(ttl / 5, absl::Milliseconds(500), absl::Seconds(1))},
          .run = recovery.etcd().run(),
          .ttl = ttl,
          .startup = absl::Seconds(config.limits().startup_seconds()),
          .patience = absl::Seconds(config.limits().exchange_seconds()),
          .clock = clock};
}

EtcdLink::EtcdLink(const Options& options)
    : options_(options), keys_(options.run), client_(options.client) {}

EtcdLink::~EtcdLink() = default;

void EtcdLink::Start(Listener listener) {
  listener_ = std::move(listener);
  lease_ = std::make_unique<EtcdLease>(EtcdLease::Options{
      .client = &client_, .clock = options_.clock, .ttl = options_.ttl, .on_change = [this] {
        wakeup_.Wake();
      }});
  watch_ = std::make_unique<EtcdWatch>(
      EtcdWatch::Options{.client = &client_, .clock = options_.clock, .prefix = keys_.view()},
      EtcdWatch::Listener{.on_keys =
                              [this](const std::vector<mvccpb::KeyValue>& keys) {
                                for (const mvccpb::KeyValue& key : keys) TakeKey(key);
                              },
                          .on_event =
                              [this](const mvccpb::Event& event) {
                                if (event.type() == mvccpb::Event::PUT) TakeKey(event.kv());
                              }});
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void EtcdLink::Announce(const ProcessState& state) {
  {
    absl::MutexLock lock(&state_mutex_);
    state_ = state;
  }
  wakeup_.Wake();
}

bool EtcdLink::HoldsRoles() const { return holds_place_ && !ended_ && lease_->Surely(); }

void EtcdLink::Run(const std::stop_token& stop) {
  while (!stop.stop_requested() && !ended_) wakeup_.SleepUntil(*options_.clock, Step(stop), stop);
}

absl::Time EtcdLink::Step(const std::stop_token& stop) {
  const absl::Time now = options_.clock->Now();
  if (lease_->HasEnded()) {
    End(
        absl::UnavailableError("this process's lease in etcd has ended, so that another may have "
                               "its place by now; it has to be started again"));
    return now;
  }
  const absl::Duration away = now - lease_->confirmed();
  const absl::Duration allowed = lease_->id() == 0 ? options_.startup : options_.patience;
  if (away > allowed) {
    End(absl::DeadlineExceededError(absl::StrCat("etcd has not answered for ",
                                                 absl::FormatDuration(away), ": ",
                                                 lease_->trouble().message())));
    return now;
  }
  std::optional<ProcessState> state;
  {
    absl::MutexLock lock(&state_mutex_);
    state = state_;
  }
  if (lease_->id() == 0 || !state.has_value()) return now + kPeriod;
  const absl::Status done = holds_place_ ? Deliver(*state, stop) : Claim(*state, stop);
  if (absl::IsNotFound(done)) {
    End(absl::UnavailableError(
        "this process's lease in etcd has ended; it has to be started again"));
  } else if (!done.ok() && !absl::IsUnavailable(done) && !absl::IsCancelled(done)) {
    End(done);
  }
  return now + kPeriod;
}

absl::Status EtcdLink::Claim(const ProcessState& state, const std::stop_token& stop) {
  const std::string key = keys_.Process(state);
  const int64_t lease = lease_->id();
  std::string value = state.SerializeAsString();
  etcdserverpb::TxnRequest request;
  CompareCreateRevision(key, 0, &request);
  CompareCreateRevision(keys_.end(), 0, &request);
  PutOnSuccess(key, value, lease, &request);
  ReadOnFailure(key, &request);
  ReadOnFailure(keys_.end(), &request);
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, client_.Txn(request, stop));
  if (response.succeeded()) {
    delivered_ = std::move(value);
    holds_place_ = true;
    return absl::OkStatus();
  }
  const mvccpb::KeyValue* held = ReadKey(response, 0);
  // The answer to an attempt that took the place may have been lost.
  if (held != nullptr && held->lease() == lease) {
    delivered_ = held->value();
    holds_place_ = true;
    wakeup_.Wake();
    return absl::OkStatus();
  }
  if (const mvccpb::KeyValue* end = ReadKey(response, 1); end != nullptr) {
    Verdict verdict;
    verdict.ParseFromString(end->value());
    return IsOver(verdict);
  }
  if (held != nullptr) AwaitHolder(state, *held);
  return absl::OkStatus();
}

void EtcdLink::AwaitHolder(const ProcessState& state, const mvccpb::KeyValue& held) {
  const absl::Time now = options_.clock->Now();
  ProcessState other;
  other.ParseFromString(held.value());
  const std::string at =
      other.address().empty() ? "" : absl::StrCat(" at ", Printable(other.address(), 100));
  if (holder_.create_revision != held.create_revision()) {
    holder_ = {.create_revision = held.create_revision(), .since = now};
    spdlog::info("the place of {} is held by another process{}; waiting until its lease ends",
                 NameOf(state), at);
  } else if (now - holder_.since > LongestLease(options_.ttl)) {
    End(absl::AlreadyExistsError(absl::StrCat(
        "the place of ", NameOf(state), " is held by another process", at,
        ", which has renewed its lease meanwhile; each index and rank may be started once")));
  }
}

absl::Status EtcdLink::Deliver(const ProcessState& state, const std::stop_token& stop) {
  std::string value = state.SerializeAsString();
  if (value == delivered_) return absl::OkStatus();
  const std::string key = keys_.Process(state);
  etcdserverpb::TxnRequest request;
  CompareLease(key, lease_->id(), &request);
  PutOnSuccess(key, value, lease_->id(), &request);
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, client_.Txn(request, stop));
  if (!response.succeeded()) return absl::NotFoundError("the place is gone");
  delivered_ = std::move(value);
  return absl::OkStatus();
}

void EtcdLink::TakeKey(const mvccpb::KeyValue& key) {
  if (key.key() == keys_.view()) return TakeView(key);
  std::optional<ProcessState> state;
  {
    absl::MutexLock lock(&state_mutex_);
    state = state_;
  }
  Verdict verdict;
  if (!verdict.ParseFromString(key.value()) || verdict.code() == 0) return;
  const bool is_mine = state.has_value() && key.key() == keys_.Refused(*state) &&
                       verdict.incarnation() == state->incarnation();
  if (is_mine || (key.key() == keys_.end() && holds_place_)) {
    End(absl::Status(static_cast<absl::StatusCode>(verdict.code()), Printable(verdict.reason())));
  } else if (key.key() == keys_.end()) {
    End(IsOver(verdict));
  }
}

absl::Status EtcdLink::IsOver(const Verdict& verdict) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "the run of this name in etcd is over: ",
      verdict.code() == 0 ? "it has succeeded" : Printable(verdict.reason()),
      "; to begin another, change recovery.etcd.run or delete the keys that begin with ",
      keys_.run()));
}

void EtcdLink::TakeView(const mvccpb::KeyValue& key) {
  View view;
  if (!view.ParseFromString(key.value())) {
    return End(absl::DataLossError(absl::StrCat("etcd's key ", key.key(), " is not a view")));
  }
  absl::MutexLock lock(&delivery_mutex_);
  if (ended_ || view.number() <= latest_view_) return;
  latest_view_ = view.number();
  listener_.on_view(view);
}

void EtcdLink::End(const absl::Status& reason) {
  absl::MutexLock lock(&delivery_mutex_);
  if (!ended_.exchange(true)) listener_.on_end(reason);
}

}  // namespace evenshard
