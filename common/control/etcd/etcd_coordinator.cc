#include "common/control/etcd/etcd_coordinator.h"

#include <utility>
#include <variant>

#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// The pause before a candidate tries again, as while etcd is away.
constexpr absl::Duration kPeriod = absl::Milliseconds(500);

}  // namespace

EtcdCoordinator::EtcdCoordinator(const Options& options)
    : options_(options),
      keys_(options.run),
      runner_(options.etcd->MakeRunner(this)),
      watch_(
          {.etcd = options.etcd.get(), .prefix = keys_.coordinator()},
          {.on_keys = [this](const std::vector<mvccpb::KeyValue>& keys) { SetFree(keys.empty()); },
           .on_event =
               [this](const mvccpb::Event& event) {
                 SetFree(event.type() == mvccpb::Event::DELETE);
               }}) {
  runner_->Start();
}

EtcdCoordinator::~EtcdCoordinator() { runner_->Stop(); }

void EtcdCoordinator::SetFree(bool is_free) {
  is_free_ = is_free;
  runner_->Wake();
}

EtcdMachine::Step EtcdCoordinator::Next(absl::Time now) {
  if (term_.has_value()) {
    absl::StatusOr<Step> step = term_->Next(now);
    if (step.ok()) return *std::move(step);
    EndTerm(step.status());
    paused_until_ = now + kPeriod;
  }
  if (gives_up_) return absl::InfiniteFuture();
  if (now < paused_until_) return paused_until_;
  if (lease_ != nullptr && lease_->HasEnded()) {
    lease_.reset();
    return paused_until_ = now + kPeriod;
  }
  if (lease_ == nullptr) {
    if (!is_free_) return absl::InfiniteFuture();
    lease_ = std::make_unique<EtcdLease>(
        EtcdLease::Options{.etcd = options_.etcd.get(), .ttl = options_.ttl, .on_change = [this] {
                             runner_->Wake();
                           }});
  }
  if (lease_->id() == 0) return absl::InfiniteFuture();
  return Campaign();
}

void EtcdCoordinator::Answered(const EtcdAnswer& answer, absl::Time now) {
  if (term_.has_value()) {
    const absl::Status taken = term_->Answered(answer, now);
    if (taken.ok()) return;
    EndTerm(taken);
  } else if (answer.ok()) {
    const auto& response = std::get<etcdserverpb::TxnResponse>(*answer);
    if (response.succeeded()) return BeginTerm(response.header().revision());
    // The answer to an attempt that has succeeded may have been lost.
    const mvccpb::KeyValue* held = ReadKey(response, 0);
    if (held != nullptr && held->lease() == lease_->id()) return BeginTerm(held->create_revision());
    // The watch may hear of the winner later than this candidate.
    lease_.reset();
  }
  paused_until_ = now + kPeriod;
}

etcdserverpb::TxnRequest EtcdCoordinator::Campaign() const {
  etcdserverpb::TxnRequest request;
  CompareCreateRevision(keys_.coordinator(), 0, &request);
  PutOnSuccess(keys_.coordinator(), options_.name, lease_->id(), &request);
  ReadOnFailure(keys_.coordinator(), &request);
  return request;
}

void EtcdCoordinator::BeginTerm(int64_t created) {
  spdlog::info("{} is the run's coordinator from now on", options_.name);
  is_elected_ = true;
  term_.emplace(CoordinatorTerm::Options{.etcd = options_.etcd.get(),
                                         .wake = [this] { runner_->Wake(); },
                                         .lease = lease_.get(),
                                         .keys = keys_,
                                         .created = created,
                                         .settings = options_.settings,
                                         .checkpoints = options_.checkpoints,
                                         .on_event = options_.on_event});
}

void EtcdCoordinator::EndTerm(const absl::Status& over) {
  term_.reset();
  is_elected_ = false;
  if (absl::IsFailedPrecondition(over)) {
    spdlog::error("{}", std::string(over.message()));
    gives_up_ = true;
    lease_.reset();  // so that another candidate takes over
  } else {
    spdlog::info("{} is not the coordinator for now: {}", options_.name,
                 std::string(over.message()));
  }
}

}  // namespace evenshard
