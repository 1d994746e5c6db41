#include "tests/simulation/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"

namespace evenshard {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      context_(*options_.context),
      silence_(absl::Seconds(context_.config.proto().recovery().silence_seconds())),
      storage_(context_.disk.Mount(options_.node)) {
  settings_ =
      ViewCoordinator::SettingsOf(context_.config.proto(), context_.config.run_fingerprint());
  settings_.run = options_.run;
  if (context_.scenario.has_checkpoints) {
    const std::string& folder = context_.config.proto().recovery().checkpoint().folder();
    auto owner = FolderOwner::Take(storage_.get(), folder, options_.run, "the simulation");
    if (!owner.ok()) {
      failure_ = owner.status();
      return;
    }
    owner_ = *std::move(owner);
    const absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> newest = Newest(true);
    const absl::StatusOr<uint64_t> next = CheckpointFolder(storage_.get(), folder).NextGeneration();
    if (!newest.ok() || !next.ok()) {
      failure_ = newest.ok() ? next.status() : newest.status();
      return;
    }
    settings_.resume = *newest;
    published_.set_generation(*next - 1);
  }
  MakeCoordinator();
  context_.world.Run(options_.node, absl::ZeroDuration(), [this] { Tick(); });
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Coordinator::Newest(
    bool passes_over_unreadable) {
  const CheckpointFolder folder(storage_.get(),
                                context_.config.proto().recovery().checkpoint().folder());
  ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> newest,
                   folder.Newest(Verification::kFull, passes_over_unreadable, nullptr));
  if (!newest.has_value()) return std::nullopt;
  ViewCoordinator::Checkpoint checkpoint{.name = newest->id.ToString(),
                                         .generation = newest->id.generation,
                                         .iteration = newest->id.iteration};
  checkpoint.worker_set = {newest->facts->worker_set.begin(), newest->facts->worker_set.end()};
  return checkpoint;
}

void Coordinator::MakeCoordinator() {
  const absl::Time now = Now();
  coordinator_.emplace(
      settings_, [this](bool passes_over_unreadable) { return Newest(passes_over_unreadable); },
      published_);
  for (const auto& [node, process] : processes_) {
    if (process.has_said) coordinator_->Seen(process.state, now).IgnoreError();
  }
  // Those that have ended while there was no coordinator have no lease any more.
  for (int node = 0; node < context_.NodeOfCoordinator(); ++node) {
    const uint64_t present = processes_.contains(node) ? processes_[node].incarnation : 0;
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

void Coordinator::ReplaceCoordinator(absl::Time until) {
  coordinator_.reset();
  context_.world.Run(options_.node, until - context_.world.loop().Now(), [this] {
    if (!coordinator_.has_value()) MakeCoordinator();
  });
}

bool Coordinator::MayStart(int node) const {
  return !context_.scenario.etcd || !processes_.contains(node);
}

void Coordinator::Opened(const Peer& peer) {
  const auto found = processes_.find(peer.node.node);
  // What was sent earlier, on another connection, may come later.
  const auto age = [](const Peer& each) { return std::pair(each.node.start, each.number); };
  if (found != processes_.end() && age(found->second.peer) > age(peer)) return;
  if (found != processes_.end() && !(found->second.peer.node == peer.node)) {
    // The place is taken until the lease of the start before has run out.
    if (context_.scenario.etcd) {
      const absl::Status taken = absl::UnavailableError("the place is taken");
      peer.connection->Close(1, taken);
      return;
    }
  }
  Process& process = processes_[peer.node.node];
  if (!(process.peer.node == peer.node)) process = Process();
  process.peer = peer;
  process.heard = Now();
  if (published_.number() > 0) TellView(peer);
}

void Coordinator::Heard(NodeRef node, absl::Time asked) {
  const auto found = processes_.find(node.node);
  if (found == processes_.end() || !(found->second.peer.node == node)) return;
  found->second.heard = Now();
  if (!context_.scenario.etcd) return;
  const Peer& peer = found->second.peer;
  peer.connection->Send(1, [on_lease = peer.on_lease, asked] { on_lease(asked); });
}

void Coordinator::Said(NodeRef node, const std::string& state) {
  const auto found = processes_.find(node.node);
  if (found == processes_.end() || !(found->second.peer.node == node)) return;
  Process& process = found->second;
  process.heard = Now();
  process.state.ParseFromString(state);
  process.incarnation = process.state.incarnation();
  process.has_said = true;
  if (!coordinator_.has_value()) return;
  const absl::Status seen = coordinator_->Seen(process.state, process.heard);
  if (seen.ok()) return;
  context_.world.Log(absl::StrCat("the coordinator refuses ", context_.world.name(node.node), ": ",
                                  seen.message()));
  const Peer& peer = process.peer;
  peer.connection->Send(1,
                        [on_end = peer.on_end, why = std::string(seen.message())] { on_end(why); });
}

void Coordinator::Died(NodeRef node, uint64_t incarnation, const std::string& why) {
  if (context_.scenario.etcd) return;
  const auto found = processes_.find(node.node);
  if (found != processes_.end() && found->second.peer.node == node) processes_.erase(found);
  Gone(node.node, incarnation, why, Now());
}

void Coordinator::Gone(int node, uint64_t incarnation, const std::string& why, absl::Time since) {
  if (!coordinator_.has_value()) return;
  const absl::Time now = Now();
  if (IsWorker(node)) {
    const uint32_t rank = node - context_.scenario.processes();
    coordinator_->Gone(ViewCoordinator::Worker{rank, incarnation}, why, since, now);
  } else {
    const uint32_t index = node;
    coordinator_->Gone(ViewCoordinator::PsProcess{index, incarnation}, why, since, now);
  }
}

void Coordinator::Tick() {
  const absl::Time now = Now();
  // As launch does: if it could not run for a while, it has not heard what the others said.
  const bool was_away = !context_.scenario.etcd && now > ticked_ + silence_ / 2;
  ticked_ = now;
  std::vector<int> silent;
  for (auto& [node, process] : processes_) {
    if (was_away) process.heard = now;
    if (now - process.heard > silence_) silent.push_back(node);
  }
  for (const int node : silent) {
    const Process process = processes_[node];
    context_.watch.CountsAsSilent(node);
    if (context_.scenario.etcd) {
      context_.world.Log(absl::StrCat("the lease of ", context_.world.name(node), " has run out"));
      process.peer.connection->Close(1, absl::UnavailableError("its lease has run out"));
      processes_.erase(node);
      ++lost_leases_;
      if (process.has_said) Gone(node, process.incarnation, "lost its lease", process.heard);
    } else if (context_.world.IsRunning(process.peer.node)) {
      options_.kill(node, "was silent and was killed");
    }
  }
  if (coordinator_.has_value()) coordinator_->Tick(now);
  context_.world.Run(options_.node, kTick, [this] { Tick(); });
}

void Coordinator::AfterEvent() {
  if (coordinator_.has_value()) Publish();
}

void Coordinator::Publish() {
  for (const RecoveryEvent& event : coordinator_->TakeEvents()) {
    context_.world.Log(absl::StrCat("coordinator: ", event.what()));
  }
  failure_.Update(coordinator_->failure());
  finished_ = finished_ || coordinator_->finished();
  if (coordinator_->view().number() == published_.number()) return;
  published_ = coordinator_->view();
  has_had_copies_ |= std::all_of(published_.slot().begin(), published_.slot().end(),
                                 [](const SlotView& slot) { return slot.replica_is_complete(); });
  context_.world.Log(absl::StrCat("view: ", published_.ShortDebugString()));
  // A checkpoint that cannot be read at the moment counts as damaged, and is passed over.
  context_.oracle.ViewBegan(
      published_, /*reads_newest=*/!context_.disk.is_failing() && !context_.disk.has_read_errors());
  for (const auto& [node, process] : processes_) TellView(process.peer);
}

void Coordinator::TellView(const Peer& peer) const {
  peer.connection->Send(1, [on_view = peer.on_view, view = published_] { on_view(view); });
}

}  // namespace evenshard
