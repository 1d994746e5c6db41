#include "common/control/etcd/etcd_link.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
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

EtcdLink::Options EtcdLink::OptionsOf(const ClusterConfig& config,
                                      std::shared_ptr<EtcdRuntime> etcd) {
  return {.etcd = std::move(etcd),
          .run = config.recovery().etcd().run(),
          .ttl = EtcdLease::TtlOf(config.recovery()),
          .startup = absl::Seconds(config.limits().startup_seconds()),
          .patience = absl::Seconds(config.limits().exchange_seconds())};
}

EtcdLink::EtcdLink(const Options& options)
    : options_(options), keys_(options.run), runner_(options.etcd->MakeRunner(this)) {}

EtcdLink::~EtcdLink() { runner_->Stop(); }

void EtcdLink::Start(Listener listener) {
  listener_ = std::move(listener);
  EtcdRuntime* const etcd = options_.etcd.get();
  lease_ = std::make_unique<EtcdLease>(EtcdLease::Options{
      .etcd = etcd, .ttl = options_.ttl, .on_change = [this] { runner_->Wake(); }});
  watch_ = std::make_unique<EtcdWatch>(
      EtcdWatch::Options{.etcd = etcd, .prefix = keys_.view()},
      EtcdWatch::Listener{.on_keys =
                              [this](const std::vector<mvccpb::KeyValue>& keys) {
                                for (const mvccpb::KeyValue& key : keys) TakeKey(key);
                              },
                          .on_event =
                              [this](const mvccpb::Event& event) {
                                if (event.type() == mvccpb::Event::PUT) TakeKey(event.kv());
                              }});
  runner_->Start();
}

void EtcdLink::Announce(const ProcessState& state) {
  {
    absl::MutexLock lock(&state_mutex_);
    state_ = state;
  }
  runner_->Wake();
}

std::optional<ProcessState> EtcdLink::state() const {
  absl::MutexLock lock(&state_mutex_);
  return state_;
}

bool EtcdLink::HoldsRoles() const { return holds_place_ && !ended_ && lease_->Surely(); }

EtcdMachine::Step EtcdLink::Next(absl::Time now) {
  CheckLease(now);
  if (ended_) return absl::InfiniteFuture();
  const std::optional<ProcessState> state = this->state();
  if (lease_->id() == 0 || !state.has_value()) return now + kPeriod;
  if (now < paused_until_) return paused_until_;
  if (holds_place_ && state->SerializeAsString() == delivered_) return now + kPeriod;
  asked_ = *state;
  return holds_place_ ? Delivery() : Claim();
}

void EtcdLink::CheckLease(absl::Time now) {
  if (ended_) return;
  if (lease_->HasEnded()) {
    return End(
        absl::UnavailableError("this process's lease in etcd has ended, so that another may have "
                               "its place by now; it has to be started again"));
  }
  const absl::Duration away = now - lease_->confirmed();
  if (away <= (lease_->id() == 0 ? options_.startup : options_.patience)) return;
  End(absl::DeadlineExceededError(absl::StrCat("etcd has not answered for ",
                                               absl::FormatDuration(away), ": ",
                                               lease_->trouble().message())));
}

etcdserverpb::TxnRequest EtcdLink::Claim() const {
  const std::string key = keys_.Process(asked_);
  etcdserverpb::TxnRequest request;
  CompareCreateRevision(key, 0, &request);
  CompareCreateRevision(keys_.end(), 0, &request);
  PutOnSuccess(key, asked_.SerializeAsString(), lease_->id(), &request);
  ReadOnFailure(key, &request);
  ReadOnFailure(keys_.end(), &request);
  return request;
}

etcdserverpb::TxnRequest EtcdLink::Delivery() const {
  const std::string key = keys_.Process(asked_);
  etcdserverpb::TxnRequest request;
  CompareLease(key, lease_->id(), &request);
  // A request without an answer may come to etcd later than those that followed it.
  CompareModRevision(key, delivered_at_, &request);
  PutOnSuccess(key, asked_.SerializeAsString(), lease_->id(), &request);
  ReadOnFailure(key, &request);
  return request;
}

void EtcdLink::Answered(const EtcdAnswer& answer, absl::Time now) {
  absl::Status done = answer.status();
  if (answer.ok()) {
    const auto& response = std::get<etcdserverpb::TxnResponse>(*answer);
    if (response.succeeded()) {
      delivered_ = asked_.SerializeAsString();
      delivered_at_ = response.header().revision();
      holds_place_ = true;
      return;
    }
    done = holds_place_ ? Undelivered(response) : Claimed(response, now);
  }
  paused_until_ = done.ok() && holds_place_ ? now : now + kPeriod;
  if (absl::IsNotFound(done)) {
    End(absl::UnavailableError(
        "this process's lease in etcd has ended; it has to be started again"));
  } else if (!done.ok() && !absl::IsUnavailable(done)) {
    End(done);
  }
}

bool EtcdLink::Holds(const mvccpb::KeyValue* place) {
  if (place == nullptr || place->lease() != lease_->id()) return false;
  delivered_ = place->value();
  delivered_at_ = place->mod_revision();
  holds_place_ = true;
  return true;
}

absl::Status EtcdLink::Undelivered(const etcdserverpb::TxnResponse& response) {
  return Holds(ReadKey(response, 0)) ? absl::OkStatus() : absl::NotFoundError("the place is gone");
}

// The place was not free.
absl::Status EtcdLink::Claimed(const etcdserverpb::TxnResponse& response, absl::Time now) {
  const mvccpb::KeyValue* held = ReadKey(response, 0);
  if (Holds(held)) return absl::OkStatus();
  if (const mvccpb::KeyValue* end = ReadKey(response, 1); end != nullptr) {
    Verdict verdict;
    verdict.ParseFromString(end->value());
    return IsOver(verdict);
  }
  if (held != nullptr) AwaitHolder(*held, now);
  return absl::OkStatus();
}

void EtcdLink::AwaitHolder(const mvccpb::KeyValue& held, absl::Time now) {
  ProcessState other;
  other.ParseFromString(held.value());
  const std::string at =
      other.address().empty() ? "" : absl::StrCat(" at ", Printable(other.address(), 100));
  if (holder_.create_revision != held.create_revision()) {
    holder_ = {.create_revision = held.create_revision(), .since = now};
    spdlog::info("the place of {} is held by another process{}; waiting until its lease ends",
                 NameOf(asked_), at);
  } else if (now - holder_.since > LongestLease(options_.ttl)) {
    End(absl::AlreadyExistsError(absl::StrCat(
        "the place of ", NameOf(asked_), " is held by another process", at,
        ", which has renewed its lease meanwhile; each index and rank may be started once")));
  }
}

void EtcdLink::TakeKey(const mvccpb::KeyValue& key) {
  if (key.key() == keys_.view()) return TakeView(key);
  const std::optional<ProcessState> state = this->state();
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
