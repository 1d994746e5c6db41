#include "common/control/etcd/coordinator_term.h"

#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/control/view/view_check.h"
#include "proto/etcd/verdict.pb.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

using etcdserverpb::TxnResponse;

// How often time passes for the coordinator.
constexpr absl::Duration kTick = absl::Milliseconds(100);

constexpr char kGone[] = "has lost its place in etcd";

std::string ToValue(const absl::Status& outcome, uint64_t incarnation) {
  Verdict verdict;
  verdict.set_code(outcome.raw_code());
  verdict.set_reason(Printable(outcome.message()));
  verdict.set_incarnation(incarnation);
  return verdict.SerializeAsString();
}

etcdserverpb::RangeRequest ReadAll(const std::string& prefix) {
  etcdserverpb::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(EndOfPrefix(prefix));
  return request;
}

ProcessState PsState(const ProcessId& id) {
  ProcessState state;
  state.set_ps(id.process());
  state.set_incarnation(id.incarnation());
  return state;
}

}  // namespace

CoordinatorTerm::CoordinatorTerm(const Options& options) : options_(options) {}

absl::StatusOr<EtcdMachine::Step> CoordinatorTerm::Next(absl::Time now) {
  if (options_.lease->HasEnded()) return absl::AbortedError("the coordinator's lease has ended");
  if (!last_.has_value()) return ReadAll(options_.keys.view());
  if (!coordinator_.has_value()) return ReadAll(options_.keys.processes());
  if (!change_.has_value()) {
    TakeNews(now);
    if (options_.checkpoints != nullptr) {
      RETURN_IF_ERROR(options_.checkpoints->Hold());
    }
    // Before the processes are known, those of the last view only seem to be alive.
    if (has_all_) coordinator_->Tick(now);
    for (const RecoveryEvent& event : coordinator_->TakeEvents()) options_.on_event(event);
    change_ = NextChange();
    if (!change_.has_value()) return now + kTick;
    CompareCreateRevision(options_.keys.coordinator(), options_.created, &change_->request);
    ReadOnFailure(options_.keys.coordinator(), &change_->request);
  }
  if (now < paused_until_) return paused_until_;
  return change_->request;
}

absl::Status CoordinatorTerm::Answered(const EtcdAnswer& answer, absl::Time now) {
  if (change_.has_value() && absl::IsUnavailable(answer.status())) {
    // While etcd is away nothing can be published. The lease tells when the term is over.
    paused_until_ = now + kTick;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(answer.status());
  if (!change_.has_value()) {
    const auto& response = std::get<etcdserverpb::RangeResponse>(*answer);
    return last_.has_value() ? Begin(response) : TakeLast(response);
  }
  const auto& response = std::get<TxnResponse>(*answer);
  if (!response.succeeded()) {
    const mvccpb::KeyValue* held = ReadKey(response, response.responses_size() - 1);
    if (held == nullptr) {
      return absl::AbortedError("the coordinator's key has been removed from etcd");
    }
    if (held->create_revision() != options_.created) {
      return absl::AbortedError("another coordinator has taken over");
    }
  }
  const Change change = *std::exchange(change_, std::nullopt);
  return change.done(response);
}

absl::Status CoordinatorTerm::TakeLast(const etcdserverpb::RangeResponse& response) {
  View last;
  for (const mvccpb::KeyValue& key : response.kvs()) {
    if (key.key() == options_.keys.end()) end_published_ = true;
    if (key.key() != options_.keys.view()) continue;
    if (!last.ParseFromString(key.value())) {
      return absl::DataLossError(absl::StrCat("etcd's key ", key.key(), " is not a view"));
    }
    view_revision_ = key.mod_revision();
  }
  if (last.number() > 0) {
    const absl::Status fits = CheckView(last, options_.settings.slots, options_.settings.workers);
    if (!fits.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("etcd's key ", options_.keys.view(), ": ", fits.message(),
                       "; give each run a name of its own (recovery.etcd.run)"));
    }
  }
  published_ = last.number();
  for (const SlotView& slot : last.slot()) {
    if (slot.has_primary()) Remember(PsState(slot.primary()));
    if (slot.has_replica()) Remember(PsState(slot.replica()));
  }
  for (int rank = 0; rank < last.worker_size(); ++rank) {
    ProcessState state;
    state.set_worker(rank);
    state.set_incarnation(last.worker(rank).incarnation());
    if (state.incarnation() != 0) Remember(state);
  }
  last_ = std::move(last);
  return absl::OkStatus();
}

absl::Status CoordinatorTerm::Begin(const etcdserverpb::RangeResponse& processes) {
  // A process with another config would refuse all others, and not be refused itself.
  for (const mvccpb::KeyValue& key : processes.kvs()) {
    const auto known = processes_.find(key.key());
    ProcessState state;
    if (known == processes_.end() || !state.ParseFromString(key.value())) continue;
    if (state.incarnation() == known->second.incarnation &&
        state.config_fingerprint() != options_.settings.config_fingerprint) {
      return absl::FailedPreconditionError(
          "this process has another config than the run, and makes no views of it");
    }
  }
  ViewCoordinator::Settings settings = options_.settings;
  const bool is_new = last_->number() == 0;
  if (!is_new) settings.run = last_->run();
  if (CoordinatorCheckpoints* checkpoints = options_.checkpoints; checkpoints != nullptr) {
    ASSIGN_OR_RETURN(settings.resume, checkpoints->Begin(settings.run, is_new));
  }
  const auto newest = [checkpoints = options_.checkpoints](bool passes_over_unreadable)
      -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
    if (checkpoints == nullptr) return std::nullopt;
    return checkpoints->Newest(passes_over_unreadable);
  };
  coordinator_.emplace(std::move(settings), newest, *last_);
  watch_.emplace(EtcdWatch::Options{.etcd = options_.etcd, .prefix = options_.keys.processes()},
                 EtcdWatch::Listener{
                     .on_keys =
                         [this](const std::vector<mvccpb::KeyValue>& keys) {
                           Add({.is_all = true, .keys = keys});
                         },
                     .on_event = [this](const mvccpb::Event& event) { Add({.event = event}); }});
  return absl::OkStatus();
}

void CoordinatorTerm::Remember(const ProcessState& state) {
  processes_[options_.keys.Process(state)] = {
      .is_worker = state.has_worker(),
      .index = state.has_worker() ? state.worker() : state.ps(),
      .incarnation = state.incarnation()};
}

void CoordinatorTerm::Add(News news) {
  {
    absl::MutexLock lock(&mutex_);
    news_.push_back(std::move(news));
  }
  options_.wake();
}

void CoordinatorTerm::TakeNews(absl::Time now) {
  std::vector<News> news;
  {
    absl::MutexLock lock(&mutex_);
    news.swap(news_);
  }
  for (const News& item : news) {
    if (item.is_all) {
      TakeAll(item.keys, now);
    } else if (item.event.type() == mvccpb::Event::PUT) {
      TakePut(item.event.kv(), now);
    } else {
      TakeDelete(item.event.kv().key(), now);
    }
  }
}

void CoordinatorTerm::TakeAll(const std::vector<mvccpb::KeyValue>& keys, absl::Time now) {
  std::set<std::string> present;
  for (const mvccpb::KeyValue& key : keys) present.insert(key.key());
  std::vector<std::string> gone;
  for (const auto& [key, process] : processes_) {
    if (!present.contains(key)) gone.push_back(key);
  }
  for (const std::string& key : gone) TakeDelete(key, now);
  for (const mvccpb::KeyValue& key : keys) TakePut(key, now);
  has_all_ = true;
}

void CoordinatorTerm::TakePut(const mvccpb::KeyValue& key, absl::Time now) {
  ProcessState state;
  if (!state.ParseFromString(key.value()) || options_.keys.Process(state) != key.key()) {
    spdlog::warn("etcd's key {} is not the state of its process; it is ignored",
                 Printable(key.key(), 100));
    return;
  }
  const auto known = processes_.find(key.key());
  if (known != processes_.end() && known->second.incarnation != state.incarnation()) {
    TakeDelete(key.key(), now);
  }
  Remember(state);
  const absl::Status seen = coordinator_->Seen(state, now);
  if (seen.ok()) return;
  refusals_[options_.keys.Refused(state)] = ToValue(seen, state.incarnation());
}

void CoordinatorTerm::TakeDelete(const std::string& key, absl::Time now) {
  const auto known = processes_.find(key);
  if (known == processes_.end()) return;
  const ViewCoordinator::Process process = known->second;
  processes_.erase(known);
  coordinator_->Gone(process, kGone, now, now);
}

std::optional<CoordinatorTerm::Change> CoordinatorTerm::NextChange() {
  if (coordinator_->view().number() != published_) return PublishView();
  if (!refusals_.empty()) return PublishRefusal();
  const bool is_over = !coordinator_->failure().ok() || coordinator_->finished();
  if (is_over && !end_published_) return PublishEnd();
  return std::nullopt;
}

CoordinatorTerm::Change CoordinatorTerm::PublishView() {
  const std::string value = coordinator_->view().SerializeAsString();
  Change change;
  CompareModRevision(options_.keys.view(), view_revision_, &change.request);
  PutOnSuccess(options_.keys.view(), value, 0, &change.request);
  ReadOnFailure(options_.keys.view(), &change.request);
  change.done = [this, value, number = coordinator_->view().number()](const TxnResponse& response) {
    if (response.succeeded()) {
      view_revision_ = response.header().revision();
    } else {
      // The answer to an attempt that has published the view may have been lost.
      const mvccpb::KeyValue* present = ReadKey(response, 0);
      if (present == nullptr || present->value() != value) {
        return absl::InternalError("another view was published meanwhile");
      }
      view_revision_ = present->mod_revision();
    }
    published_ = number;
    return absl::OkStatus();
  };
  return change;
}

CoordinatorTerm::Change CoordinatorTerm::PublishRefusal() {
  const auto [key, value] = *refusals_.begin();
  Change change;
  PutOnSuccess(key, value, options_.lease->id(), &change.request);
  change.done = [this, key = key](const TxnResponse&) {
    refusals_.erase(key);
    return absl::OkStatus();
  };
  return change;
}

CoordinatorTerm::Change CoordinatorTerm::PublishEnd() {
  Change change;
  PutOnSuccess(options_.keys.end(), ToValue(coordinator_->failure(), 0), 0, &change.request);
  change.done = [this](const TxnResponse&) {
    end_published_ = true;
    return absl::OkStatus();
  };
  return change;
}

}  // namespace evenshard
