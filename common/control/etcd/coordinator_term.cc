#include "common/control/etcd/coordinator_term.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/control/etcd/etcd_watch.h"
#include "proto/etcd/verdict.pb.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

// How often time passes for the coordinator.
constexpr absl::Duration kTick = absl::Milliseconds(100);

constexpr char kGone[] = "has lost its place in etcd";

std::string ToValue(const absl::Status& outcome, uint64_t incarnation) {
  Verdict verdict;
  verdict.set_code(outcome.raw_code());
  verdict.set_reason(std::string(outcome.message()));
  verdict.set_incarnation(incarnation);
  return verdict.SerializeAsString();
}

ProcessState PsState(const ProcessId& id) {
  ProcessState state;
  state.set_ps(id.process());
  state.set_incarnation(id.incarnation());
  return state;
}

}  // namespace

CoordinatorTerm::CoordinatorTerm(const Options& options) : options_(options) {}

absl::Status CoordinatorTerm::Run(const std::stop_token& stop) {
  RETURN_IF_ERROR(Begin(stop));
  const EtcdWatch watch(
      {.client = options_.client, .clock = options_.clock, .prefix = options_.keys.processes()},
      {.on_keys =
           [this](const std::vector<mvccpb::KeyValue>& keys) {
             Add({.is_all = true, .keys = keys});
           },
       .on_event = [this](const mvccpb::Event& event) { Add({.event = event}); }});
  while (!stop.stop_requested()) {
    if (options_.lease->HasEnded()) return absl::AbortedError("the coordinator's lease has ended");
    std::vector<News> news;
    {
      absl::MutexLock lock(&mutex_);
      news.swap(news_);
    }
    for (const News& item : news) {
      if (item.is_all) {
        TakeAll(item.keys);
      } else if (item.event.type() == mvccpb::Event::PUT) {
        TakePut(item.event.kv());
      } else {
        TakeDelete(item.event.kv().key());
      }
    }
    if (options_.checkpoints != nullptr) {
      RETURN_IF_ERROR(options_.checkpoints->Hold());
    }
    // Before the processes are known, those of the last view only seem to be alive.
    if (has_all_) coordinator_->Tick(options_.clock->Now());
    for (const RecoveryEvent& event : coordinator_->TakeEvents()) options_.on_event(event);
    RETURN_IF_ERROR(PublishView(stop));
    RETURN_IF_ERROR(PublishRefusals(stop));
    if (!coordinator_->failure().ok() || coordinator_->finished()) {
      RETURN_IF_ERROR(PublishEnd(coordinator_->failure(), stop));
    }
    wakeup_.SleepUntil(*options_.clock, options_.clock->Now() + kTick, stop);
  }
  return absl::CancelledError("told to stop");
}

absl::StatusOr<etcdserverpb::RangeResponse> CoordinatorTerm::ReadAll(
    const std::string& prefix, const std::stop_token& stop) const {
  etcdserverpb::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(EndOfPrefix(prefix));
  return options_.client->Range(request, stop);
}

absl::Status CoordinatorTerm::Begin(const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, ReadAll(options_.keys.view(), stop));
  View last;
  for (const mvccpb::KeyValue& key : response.kvs()) {
    if (key.key() == options_.keys.end()) end_published_ = true;
    if (key.key() != options_.keys.view()) continue;
    if (!last.ParseFromString(key.value())) {
      return absl::DataLossError(absl::StrCat("etcd's key ", key.key(), " is not a view"));
    }
    view_revision_ = key.mod_revision();
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
  RETURN_IF_ERROR(CheckConfig(stop));
  ViewCoordinator::Settings settings = options_.settings;
  settings.run = last.number() == 0 ? NewIncarnation() : last.run();
  if (CoordinatorCheckpoints* checkpoints = options_.checkpoints; checkpoints != nullptr) {
    ASSIGN_OR_RETURN(settings.resume,
                     checkpoints->Begin(settings.run, /*is_new=*/last.number() == 0));
  }
  const auto newest = [checkpoints = options_.checkpoints](bool passes_over_unreadable)
      -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
    if (checkpoints == nullptr) return std::nullopt;
    return checkpoints->Newest(passes_over_unreadable);
  };
  coordinator_.emplace(std::move(settings), newest, std::move(last));
  return absl::OkStatus();
}

// A process with another config would refuse all others, and not be refused itself.
absl::Status CoordinatorTerm::CheckConfig(const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response,
                   ReadAll(options_.keys.processes(), stop));
  for (const mvccpb::KeyValue& key : response.kvs()) {
    const auto known = processes_.find(key.key());
    ProcessState state;
    if (known == processes_.end() || !state.ParseFromString(key.value())) continue;
    if (state.incarnation() != known->second.incarnation ||
        state.config_fingerprint() == options_.settings.config_fingerprint) {
      continue;
    }
    return absl::FailedPreconditionError(
        "this process has another config than the run, and makes no views of it");
  }
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
  wakeup_.Wake();
}

void CoordinatorTerm::TakeAll(const std::vector<mvccpb::KeyValue>& keys) {
  std::set<std::string> present;
  for (const mvccpb::KeyValue& key : keys) present.insert(key.key());
  std::vector<std::string> gone;
  for (const auto& [key, process] : processes_) {
    if (!present.contains(key)) gone.push_back(key);
  }
  for (const std::string& key : gone) TakeDelete(key);
  for (const mvccpb::KeyValue& key : keys) TakePut(key);
  has_all_ = true;
}

void CoordinatorTerm::TakePut(const mvccpb::KeyValue& key) {
  ProcessState state;
  if (!state.ParseFromString(key.value()) || options_.keys.Process(state) != key.key()) {
    spdlog::warn("etcd's key {} is not the state of its process; it is ignored",
                 Printable(key.key(), 100));
    return;
  }
  const auto known = processes_.find(key.key());
  if (known != processes_.end() && known->second.incarnation != state.incarnation()) {
    TakeDelete(key.key());
  }
  Remember(state);
  const absl::Status seen = coordinator_->Seen(state, options_.clock->Now());
  if (seen.ok()) return;
  refusals_[options_.keys.Refused(state)] = ToValue(seen, state.incarnation());
}

void CoordinatorTerm::TakeDelete(const std::string& key) {
  const auto known = processes_.find(key);
  if (known == processes_.end()) return;
  const absl::Time now = options_.clock->Now();
  const ViewCoordinator::Process process = known->second;
  processes_.erase(known);
  coordinator_->Gone(process, kGone, now, now);
}

absl::Status CoordinatorTerm::PublishView(const std::stop_token& stop) {
  const View& view = coordinator_->view();
  if (view.number() == published_) return absl::OkStatus();
  TxnRequest request;
  CompareModRevision(options_.keys.view(), view_revision_, &request);
  const std::string value = view.SerializeAsString();
  PutOnSuccess(options_.keys.view(), value, 0, &request);
  ReadOnFailure(options_.keys.view(), &request);
  ASSIGN_OR_RETURN(const TxnResponse response, Change(std::move(request), stop));
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
  published_ = view.number();
  return absl::OkStatus();
}

absl::Status CoordinatorTerm::PublishEnd(const absl::Status& outcome, const std::stop_token& stop) {
  if (end_published_) return absl::OkStatus();
  TxnRequest request;
  PutOnSuccess(options_.keys.end(), ToValue(outcome, 0), 0, &request);
  RETURN_IF_ERROR(Change(std::move(request), stop).status());
  end_published_ = true;
  return absl::OkStatus();
}

absl::Status CoordinatorTerm::PublishRefusals(const std::stop_token& stop) {
  for (const auto& [key, value] : refusals_) {
    TxnRequest request;
    PutOnSuccess(key, value, options_.lease->id(), &request);
    RETURN_IF_ERROR(Change(std::move(request), stop).status());
  }
  refusals_.clear();
  return absl::OkStatus();
}

absl::StatusOr<TxnResponse> CoordinatorTerm::Change(TxnRequest request,
                                                    const std::stop_token& stop) {
  const std::string& key = options_.keys.coordinator();
  CompareCreateRevision(key, options_.created, &request);
  ReadOnFailure(key, &request);
  while (true) {
    absl::StatusOr<TxnResponse> response = options_.client->Txn(request, stop);
    if (response.ok()) {
      const mvccpb::KeyValue* held =
          response->succeeded() ? nullptr : ReadKey(*response, response->responses_size() - 1);
      if (!response->succeeded() &&
          (held == nullptr || held->create_revision() != options_.created)) {
        return absl::AbortedError("another coordinator has taken over");
      }
      return response;
    }
    // While etcd is away nothing can be published. The lease tells when the term is over.
    if (!absl::IsUnavailable(response.status())) return response;
    if (options_.lease->HasEnded()) return absl::AbortedError("the coordinator's lease has ended");
    if (!options_.clock->SleepUntil(options_.clock->Now() + kTick, stop)) {
      return absl::CancelledError("told to stop");
    }
  }
}

}  // namespace evenshard
