#include "tests/simulation/control/coordinator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/control/etcd_host.h"
#include "tests/simulation/control/launch_host.h"

namespace evenshard {

std::unique_ptr<Coordinator> Coordinator::Start(Options options) {
  if (options.context->scenario.etcd) return std::make_unique<EtcdHost>(std::move(options));
  return std::make_unique<LaunchHost>(std::move(options));
}

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      context_(*options_.context),
      silence_(absl::Seconds(context_.config.proto().recovery().silence_seconds())),
      reads_newest_(!context_.disk.is_failing() && !context_.disk.has_read_errors()) {}

void Coordinator::Publish(const View& view) {
  if (view.number() < published_.number()) {
    context_.oracle.Violated(
        absl::StrCat("view ", view.number(), " has come after view ", published_.number()));
  }
  const bool is_first = published_.number() == 0;
  published_ = view;
  has_had_copies_ |= std::all_of(published_.slot().begin(), published_.slot().end(),
                                 [](const SlotView& slot) { return slot.replica_is_complete(); });
  context_.world.Log(absl::StrCat("view: ", published_.ShortDebugString()));
  // A checkpoint that cannot be read at the moment counts as damaged, and is passed over.
  const bool reads_newest = !context_.disk.is_failing() && !context_.disk.has_read_errors();
  context_.oracle.ViewBegan(published_, is_first ? reads_newest_ : reads_newest);
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

void Coordinator::Tamper(View* view) const {
  if (context_.plant != Plant::kGivesThirdSlot || context_.scenario.replicas == 0) return;
  std::map<uint32_t, std::vector<ProcessId>> roles;
  for (const SlotView& slot : view->slot()) {
    roles[slot.primary().process()].push_back(slot.primary());
    if (slot.has_replica()) roles[slot.replica().process()].push_back(slot.replica());
  }
  for (SlotView& slot : *view->mutable_slot()) {
    if (!slot.has_primary() || slot.has_replica()) continue;
    for (const auto& [process, ids] : roles) {
      if (ids.size() != 2 || process == slot.primary().process()) continue;
      *slot.mutable_replica() = ids[0];
    }
  }
}

}  // namespace evenshard
