#include "tests/simulation/etcd_host.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// When a term that could not begin is tried again.
constexpr absl::Duration kNextTerm = absl::Milliseconds(500);

}  // namespace

EtcdHost::EtcdHost(Options options) : Coordinator(std::move(options)) {
  if (!failure_.ok()) return;
  MakeCoordinator();
  context_.world.Run(options_.node, absl::ZeroDuration(), [this] { Tick(); });
}

void EtcdHost::BeginTerm() {
  if (coordinator_.has_value()) return;
  if (context_.scenario.has_checkpoints) {
    auto opened = Open(RunCheckpoints::Start::kGoesOn);
    if (!opened.ok()) {
      context_.world.Log(absl::StrCat("no term: ", opened.status().message()));
      context_.world.Run(options_.node, kNextTerm, [this] { BeginTerm(); });
      return;
    }
    checkpoints_ = *std::move(opened);
  }
  MakeCoordinator();
}

void EtcdHost::MakeCoordinator() {
  const absl::Time now = Now();
  coordinator_.emplace(settings_, Newest(), published_);
  for (const auto& [node, process] : processes_) {
    if (process->has_said) coordinator_->Seen(process->state, now).IgnoreError();
  }
  // Those that have ended while there was no coordinator have no lease any more.
  for (int node = 0; node < context_.NodeOfCoordinator(); ++node) {
    const auto found = processes_.find(node);
    const uint64_t present = found != processes_.end() ? found->second->incarnation : 0;
    std::vector<uint64_t> named;
    if (IsWorker(node)) {
      const int rank = node - context_.scenario.processes();
      if (rank < published_.worker_size()) named.push_back(published_.worker(rank).incarnation());
    } else {
      for (const SlotView& slot : published_.slot()) {
        for (const ProcessId& id : {slot.primary(), slot.replica()}) {
          if (static_cast<int>(id.process()) == node) named.push_back(id.incarnation());
        }
      }
    }
    for (const uint64_t incarnation : named) {
      if (incarnation != 0 && incarnation != present) Gone(node, incarnation, "has ended", now);
    }
  }
}

void EtcdHost::StandStill(absl::Time until) {
  coordinator_.reset();
  if (checkpoints_ != nullptr) former_ = std::move(checkpoints_);
  World& world = context_.world;
  const absl::Duration away = until - world.loop().Now();
  world.Run(options_.node, away, [this] { BeginTerm(); });
  world.Run(options_.node, away + silence_ * world.dice().Between(0, 1),
            [this] { former_.reset(); });
}

void EtcdHost::Heard(NodeRef node, absl::Time asked) {
  Process* const process = Find(node);
  if (process == nullptr) return;
  process->heard = Now();
  const Peer& peer = process->peer;
  peer.connection->Send(1, [on_lease = peer.on_lease, asked] { on_lease(asked); });
}

absl::Status EtcdHost::Seen(Process* process) {
  if (!coordinator_.has_value()) return absl::OkStatus();
  return coordinator_->Seen(process->state, process->heard);
}

void EtcdHost::Gone(int node, uint64_t incarnation, const std::string& why, absl::Time since) {
  if (!coordinator_.has_value()) return;
  const absl::Time now = Now();
  const bool is_worker = IsWorker(node);
  const uint32_t index = is_worker ? node - context_.scenario.processes() : node;
  coordinator_->Gone({is_worker, index, incarnation}, why, since, now);
}

void EtcdHost::Tick() {
  const absl::Time now = Now();
  std::vector<int> silent;
  for (const auto& [node, process] : processes_) {
    if (now - process->heard > silence_) silent.push_back(node);
  }
  for (const int node : silent) {
    const std::unique_ptr<Process> process = std::move(processes_[node]);
    processes_.erase(node);
    context_.watch.CountsAsSilent(node);
    context_.world.Log(absl::StrCat("the lease of ", context_.world.name(node), " has run out"));
    process->peer.connection->Close(1, absl::UnavailableError("its lease has run out"));
    ++lost_leases_;
    if (process->has_said) Gone(node, process->incarnation, "lost its lease", process->heard);
  }
  if (coordinator_.has_value()) {
    if (checkpoints_ != nullptr && context_.plant != Plant::kLeavesFolderFree) {
      failure_.Update(checkpoints_->Hold());
    }
    coordinator_->Tick(now);
  }
  context_.world.Run(options_.node, kTick, [this] { Tick(); });
}

void EtcdHost::AfterEvent() {
  if (!coordinator_.has_value()) {
    Publish(published_, {});
    return;
  }
  failure_.Update(coordinator_->failure());
  finished_ |= coordinator_->finished();
  if (coordinator_->view().number() != published_.number()) {
    for (const auto& [node, process] : processes_) process->view_is_due = true;
  }
  Publish(coordinator_->view(), coordinator_->TakeEvents());
}

}  // namespace evenshard
