#include "tests/simulation/launch_host.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace evenshard {

LaunchHost::LaunchHost(Options options)
    : Coordinator(std::move(options)),
      launch_(settings_, Newest(), &context_.world.clock(options_.node.node)) {
  context_.world.Run(options_.node, absl::ZeroDuration(), [this] { Poll(); });
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
  Publish(launch_.view(), std::exchange(events_, {}));
}

}  // namespace evenshard
