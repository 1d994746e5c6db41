#include "tests/simulation/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "tests/simulation/etcd_host.h"
#include "tests/simulation/launch_host.h"

namespace evenshard {

std::unique_ptr<Coordinator> Coordinator::Start(Options options) {
  if (options.context->scenario.etcd) return std::make_unique<EtcdHost>(std::move(options));
  return std::make_unique<LaunchHost>(std::move(options));
}

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      context_(*options_.context),
      silence_(absl::Seconds(context_.config.proto().recovery().silence_seconds())),
      storage_(context_.disk.Mount(options_.node)),
      reads_newest_(!context_.disk.is_failing() && !context_.disk.has_read_errors()) {
  settings_ =
      ViewCoordinator::SettingsOf(context_.config.proto(), context_.config.run_fingerprint());
  settings_.run = options_.run;
  if (!context_.scenario.has_checkpoints) return;
  if (context_.plant == Plant::kEndsAtReadErrors && context_.disk.has_read_errors()) {
    const CheckpointFolder folder(storage_.get(),
                                  context_.config.proto().recovery().checkpoint().folder());
    failure_ =
        folder.Newest(Verification::kFull, /*passes_over_unreadable=*/false, nullptr).status();
    if (!failure_.ok()) return;
  }
  auto opened = Open(RunCheckpoints::Start::kResumed);
  // There is nothing to resume from, unless a run was there whose checkpoints are all damaged.
  if (absl::IsInvalidArgument(opened.status())) opened = Open(RunCheckpoints::Start::kNew);
  if (!opened.ok()) {
    failure_ = opened.status();
    return;
  }
  checkpoints_ = *std::move(opened);
  settings_.resume = checkpoints_->resume();
}

absl::StatusOr<std::unique_ptr<RunCheckpoints>> Coordinator::Open(RunCheckpoints::Start start) {
  return RunCheckpoints::Open(context_.config, options_.run, start, "the simulation",
                              storage_.get());
}

ViewCoordinator::NewestCheckpoint Coordinator::Newest() {
  return [this](bool passes_over_unreadable) {
    auto newest = checkpoints_->Newest(passes_over_unreadable);
    if (context_.plant == Plant::kEndsAtReadErrors) failure_.Update(newest.status());
    return newest;
  };
}

Coordinator::Process* Coordinator::Find(NodeRef node) {
  const auto found = processes_.find(node.node);
  return found != processes_.end() && found->second->peer.node == node ? found->second.get()
                                                                       : nullptr;
}

void Coordinator::Opened(const Peer& peer) {
  std::unique_ptr<Process>& process = processes_[peer.node.node];
  // What was sent earlier, on another connection, may come later.
  const auto age = [](const Peer& each) { return std::pair(each.node.start, each.number); };
  if (process != nullptr && age(process->peer) > age(peer)) return;
  if (process != nullptr && IsTaken(*process, peer)) {
    const absl::Status taken = absl::UnavailableError("the place is taken");
    peer.connection->Close(1, taken);
    return;
  }
  if (process != nullptr) Forget(process.get());
  if (process == nullptr || !(process->peer.node == peer.node)) {
    process = std::make_unique<Process>();
  }
  process->peer = peer;
  process->heard = Now();
  process->view_is_due = context_.scenario.etcd && published_.number() > 0;
}

void Coordinator::Said(NodeRef node, const std::string& state) {
  Process* const process = Find(node);
  if (process == nullptr) return;
  process->heard = Now();
  process->state.ParseFromString(state);
  Tamper(&process->state);
  process->incarnation = process->state.incarnation();
  process->has_said = true;
  const absl::Status seen = Seen(process);
  if (seen.ok()) return;
  context_.world.Log(absl::StrCat("the coordinator refuses ", context_.world.name(node.node), ": ",
                                  seen.message()));
  const Peer& peer = process->peer;
  peer.connection->Send(1,
                        [on_end = peer.on_end, why = std::string(seen.message())] { on_end(why); });
}

void Coordinator::Publish(const View& view, const std::vector<RecoveryEvent>& events) {
  for (const RecoveryEvent& event : events) {
    context_.world.Log(absl::StrCat("coordinator: ", event.what()));
  }
  if (view.number() != published_.number()) {
    const bool is_first = published_.number() == 0;
    published_ = view;
    TamperWithView();
    has_had_copies_ |= std::all_of(published_.slot().begin(), published_.slot().end(),
                                   [](const SlotView& slot) { return slot.replica_is_complete(); });
    context_.world.Log(absl::StrCat("view: ", published_.ShortDebugString()));
    // A checkpoint that cannot be read at the moment counts as damaged, and is passed over.
    const bool reads_newest = !context_.disk.is_failing() && !context_.disk.has_read_errors();
    context_.oracle.ViewBegan(published_, is_first ? reads_newest_ : reads_newest);
  }
  for (const auto& [node, process] : processes_) {
    if (std::exchange(process->view_is_due, false)) TellView(process->peer);
  }
}

void Coordinator::Tamper(ProcessState* state) const {
  const auto keeps_place = [](const WorkerView& worker) {
    return worker.state() != WorkerView::JOINING && worker.state() != WorkerView::LEAVING;
  };
  if (context_.plant != Plant::kMovesCuts ||
      !std::all_of(published_.worker().begin(), published_.worker().end(), keeps_place)) {
    return;
  }
  // As if each slot had reached the cut.
  for (ProcessState::Position& position : *state->mutable_position()) {
    position.set_iteration(std::max(position.iteration(), published_.cut_iteration()));
  }
}

void Coordinator::TamperWithView() {
  if (context_.plant == Plant::kGivesThirdSlot && context_.scenario.replicas > 0) {
    std::map<uint32_t, std::vector<ProcessId>> roles;
    for (const SlotView& slot : published_.slot()) {
      roles[slot.primary().process()].push_back(slot.primary());
      if (slot.has_replica()) roles[slot.replica().process()].push_back(slot.replica());
    }
    for (SlotView& slot : *published_.mutable_slot()) {
      if (!slot.has_primary() || slot.has_replica()) continue;
      for (const auto& [process, ids] : roles) {
        if (ids.size() != 2 || process == slot.primary().process()) continue;
        *slot.mutable_replica() = ids[0];
      }
    }
  }
}

void Coordinator::TellView(const Peer& peer) const {
  peer.connection->Send(1, [on_view = peer.on_view, view = published_] { on_view(view); });
}

}  // namespace evenshard
