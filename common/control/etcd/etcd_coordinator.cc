#include "common/control/etcd/etcd_coordinator.h"

#include "common/base/status_macros.h"
#include "common/control/etcd/coordinator_term.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often a candidate tries again while etcd is away.
constexpr absl::Duration kPeriod = absl::Milliseconds(500);

}  // namespace

EtcdCoordinator::EtcdCoordinator(const Options& options)
    : options_(options),
      keys_(options.run),
      client_(options.client),
      watch_(
          {.client = &client_, .clock = options.clock, .prefix = keys_.coordinator()},
          {.on_keys = [this](const std::vector<mvccpb::KeyValue>& keys) { SetFree(keys.empty()); },
           .on_event =
               [this](const mvccpb::Event& event) {
                 SetFree(event.type() == mvccpb::Event::DELETE);
               }}),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

EtcdCoordinator::~EtcdCoordinator() = default;

void EtcdCoordinator::SetFree(bool is_free) {
  is_free_ = is_free;
  wakeup_.Wake();
}

void EtcdCoordinator::Run(const std::stop_token& stop) {
  const Clock& clock = *options_.clock;
  while (!stop.stop_requested()) {
    if (!is_free_) {
      wakeup_.SleepUntil(clock, absl::InfiniteFuture(), stop);
      continue;
    }
    // A candidate needs a lease only while there is something to win.
    const EtcdLease lease(
        {.client = &client_, .clock = &clock, .ttl = options_.ttl, .on_change = [this] {
           wakeup_.Wake();
         }});
    while (!stop.stop_requested() && !lease.HasEnded()) {
      const absl::StatusOr<std::optional<int64_t>> created = Campaign(lease, stop);
      if (created.ok() && !created->has_value()) break;
      if (created.ok()) {
        spdlog::info("{} is the run's coordinator from now on", options_.name);
        const absl::Status over = RunTerm(lease, **created, stop);
        if (stop.stop_requested()) break;
        if (absl::IsFailedPrecondition(over)) {
          spdlog::error("{}", std::string(over.message()));
          return;  // the lease ends with it, so that another candidate takes over
        }
        spdlog::info("{} is not the coordinator for now: {}", options_.name,
                     std::string(over.message()));
      }
      wakeup_.SleepUntil(clock, clock.Now() + kPeriod, stop);
    }
    // The watch may hear of the winner later than this candidate.
    wakeup_.SleepUntil(clock, clock.Now() + kPeriod, stop);
  }
}

absl::Status EtcdCoordinator::RunTerm(const EtcdLease& lease, int64_t created,
                                      const std::stop_token& stop) {
  is_elected_ = true;
  const absl::Status over = CoordinatorTerm({.client = &client_,
                                             .clock = options_.clock,
                                             .lease = &lease,
                                             .keys = keys_,
                                             .created = created,
                                             .settings = options_.settings,
                                             .checkpoints = options_.checkpoints,
                                             .on_event = options_.on_event})
                                .Run(stop);
  is_elected_ = false;
  return over;
}

absl::StatusOr<std::optional<int64_t>> EtcdCoordinator::Campaign(const EtcdLease& lease,
                                                                 const std::stop_token& stop) {
  if (lease.id() == 0) return absl::UnavailableError("no lease yet");
  etcdserverpb::TxnRequest request;
  CompareCreateRevision(keys_.coordinator(), 0, &request);
  PutOnSuccess(keys_.coordinator(), options_.name, lease.id(), &request);
  ReadOnFailure(keys_.coordinator(), &request);
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, client_.Txn(request, stop));
  if (response.succeeded()) return response.header().revision();
  // The answer to an attempt that has succeeded may have been lost.
  const mvccpb::KeyValue* held = ReadKey(response, 0);
  if (held != nullptr && held->lease() == lease.id()) return held->create_revision();
  return std::nullopt;
}

}  // namespace evenshard
