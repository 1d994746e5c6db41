#include "tests/simulation/control/launch_host.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "tests/simulation/control/launch_link.h"

namespace evenshard {

LaunchHost::LaunchHost(Options options)
    : Coordinator(std::move(options)),
      storage_(context_.disk.Mount(options_.node)),
      launch_(Settings(), Newest(), &context_.world.clock(options_.node.node)) {
  context_.world.Run(options_.node, absl::ZeroDuration(), [this] { Poll(); });
}

ViewCoordinator::Settings LaunchHost::Settings() {
  ViewCoordinator::Settings settings =
      ViewCoordinator::SettingsOf(context_.config.proto(), context_.config.run_fingerprint());
  settings.run = options_.run;
  if (!context_.scenario.has_checkpoints) return settings;
  if (context_.plant == Plant::kEndsAtReadErrors && context_.disk.has_read_errors()) {
    const CheckpointFolder folder(storage_.get(),
                                  context_.config.proto().recovery().checkpoint().folder());
    failure_ =
        folder.Newest(Verification::kFull, /*passes_over_unreadable=*/false, nullptr).status();
    if (!failure_.ok()) return settings;
  }
  auto opened = Open(RunCheckpoints::Start::kResumed);
  // There is nothing to resume from, unless a run was there whose checkpoints are all damaged.
  if (absl::IsInvalidArgument(opened.status())) opened = Open(RunCheckpoints::Start::kNew);
  if (!opened.ok()) {
    failure_ = opened.status();
    return settings;
  }
  checkpoints_ = *std::move(opened);
  settings.resume = checkpoints_->resume();
  return settings;
}

absl::StatusOr<std::unique_ptr<RunCheckpoints>> LaunchHost::Open(RunCheckpoints::Start start) {
  return RunCheckpoints::Open(context_.config, options_.run, start, "the simulation",
                              storage_.get(), context_.world.clock(options_.node.node));
}

ViewCoordinator::NewestCheckpoint LaunchHost::Newest() {
  return [this](bool passes_over_unreadable) {
    auto newest = checkpoints_->Newest(passes_over_unreadable);
    if (context_.plant == Plant::kEndsAtReadErrors) failure_.Update(newest.status());
    return newest;
  };
}

std::unique_ptr<ViewLink> LaunchHost::MakeLink(NodeRef node) {
  return std::make_unique<LaunchLink>(&context_, node);
}

LaunchHost::Process* LaunchHost::Find(NodeRef node) {
  const auto found = processes_.find(node.node);
  return found != processes_.end() && found->second->peer.node == node ? found->second.get()
                                                                       : nullptr;
}

void LaunchHost::Opened(const Peer& peer) {
  std::unique_ptr<Process>& process = processes_[peer.node.node];
  // What was sent earlier, on another connection, may come later.
  const auto age = [](const Peer& each) { return std::pair(each.node.start, each.number); };
  if (process != nullptr && age(process->peer) > age(peer)) return;
  if (process != nullptr) launch_.Forget(process.get());
  if (process == nullptr || !(process->peer.node == peer.node)) {
    process = std::make_unique<Process>();
  }
  process->peer = peer;
  process->view_is_due = false;
}

void LaunchHost::Said(NodeRef node, const std::string& text) {
  Process* const process = Find(node);
  if (process == nullptr) return;
  ProcessState state;
  state.ParseFromString(text);
  Tamper(&state);
  const absl::Status seen = launch_.Heard(process, state);
  if (seen.ok()) return;
  context_.world.Log(absl::StrCat("the coordinator refuses ", context_.world.name(node.node), ": ",
                                  seen.message()));
  const Peer& peer = process->peer;
  peer.connection->Send(1, [on_end = peer.on_end, seen] { on_end(seen); });
}

ProcessRole LaunchHost::RoleOf(int node) const {
  if (!IsWorker(node)) return {.is_worker = false, .index = static_cast<uint32_t>(node)};
  return {.is_worker = true, .index = static_cast<uint32_t>(node - context_.scenario.processes())};
}

int LaunchHost::NodeOf(ProcessRole role) const {
  const int index = static_cast<int>(role.index);
  return role.is_worker ? context_.NodeOfWorker(index) : context_.NodeOfPs(index);
}

void LaunchHost::Started(int node) { launch_.Started(RoleOf(node)); }

void LaunchHost::Ended(NodeRef node, const std::string& why, bool by_signal) {
  if (Process* const process = Find(node); process != nullptr) {
    launch_.Forget(process);
    processes_.erase(node.node);
  }
  const bool success = why.empty();
  switch (launch_.Ended(RoleOf(node.node), success ? "ended" : why, by_signal, success)) {
    case RecoveryHost::Verdict::kRestart:
      options_.restart(node.node);
      return;
    case RecoveryHost::Verdict::kDone:
      return;
    case RecoveryHost::Verdict::kFailure:
      failure_.Update(launch_.failure());
      failure_.Update(absl::AbortedError(absl::StrCat(context_.world.name(node.node), " ", why)));
  }
}

void LaunchHost::StandStill(absl::Time until) { context_.world.Pause(options_.node.node, until); }

void LaunchHost::Poll() {
  RecoveryHost::Orders orders = launch_.Poll();
  events_ = std::move(orders.events);
  finished_ |= orders.finished;
  for (const ProcessRole role : orders.kill) {
    context_.watch.CountsAsSilent(NodeOf(role));
    options_.kill(NodeOf(role), "was silent and was killed");
  }
  context_.world.Run(options_.node, RecoveryHost::kPollPeriod, [this] { Poll(); });
}

void LaunchHost::AfterEvent() {
  failure_.Update(launch_.failure());
  for (const RecoveryEvent& event : std::exchange(events_, {})) {
    context_.world.Log(absl::StrCat("coordinator: ", event.what()));
  }
  if (launch_.view().number() != published_.number()) {
    View view = launch_.view();
    Tamper(&view);
    Publish(view);
  }
  for (const auto& [node, process] : processes_) {
    if (!std::exchange(process->view_is_due, false)) continue;
    const Peer& peer = process->peer;
    peer.connection->Send(1, [on_view = peer.on_view, view = published_] { on_view(view); });
  }
}

}  // namespace evenshard
