// libFuzzer target: what processes say of themselves to the coordinator in launch, in any order,
// each message wrong in a few fields, while processes end and begin. Views stay whole, their
// numbers only grow, and a slot's primary is a process of the run.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "tests/fuzz/fuzzing.h"
#include "tests/testing/fake_clock.h"
#include "tools/launch/launch_coordinator.h"

namespace evenshard {
namespace {

constexpr int kShards = 2;
constexpr int kSpares = 1;
constexpr int kWorkers = 2;

ClusterConfig ConfigOf(FuzzedDataProvider& input) {
  ClusterConfig config;
  for (int i = 0; i < kShards; ++i) config.add_shard();
  config.set_workers(kWorkers);
  Recovery& recovery = *config.mutable_recovery();
  for (int i = 0; i < kSpares; ++i) recovery.add_spare();
  recovery.set_replicas(input.ConsumeIntegralInRange(0, 1));
  recovery.set_worker_loss(
      input.PickValueInArray({Recovery::FAIL, Recovery::WAIT, Recovery::CONTINUE}));
  if (input.ConsumeBool()) recovery.mutable_checkpoint()->set_folder("checkpoints");
  config.mutable_update()->set_policy(
      input.PickValueInArray({Update::SYNC, Update::ASYNC, Update::SSP, Update::QUORUM}));
  config.mutable_update()->set_quorum(1);
  return config;
}

class Follower final : public LaunchCoordinator::Follower {
 public:
  void Send(const View& view) override {
    Require(view.number() >= number_, "no view is older than the one before");
    Require(view.slot_size() == kShards && view.worker_size() == kWorkers, "a view is whole");
    number_ = view.number();
  }

 private:
  uint64_t number_ = 0;
};

void Check(FuzzedDataProvider& input) {
  constexpr int kMostSteps = 100;
  FakeClock clock;
  const ClusterConfig config = ConfigOf(input);
  ViewCoordinator::Settings settings = ViewCoordinator::SettingsOf(config, /*fingerprint=*/5);
  settings.run = 3;
  LaunchCoordinator coordinator(
      settings,
      [&](bool) -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
        if (input.ConsumeBool()) return std::nullopt;
        return ViewCoordinator::Checkpoint{.name = "generation-0001-iteration-0000000002",
                                           .generation = 1,
                                           .iteration = 2,
                                           .trained = 2};
      },
      &clock);
  std::map<ProcessRole, std::unique_ptr<Follower>> followers;
  std::map<ProcessRole, uint64_t> incarnations;
  uint64_t incarnation = 0;
  for (int step = 0; step < kMostSteps && input.remaining_bytes() > 0; ++step) {
    const bool is_worker = input.ConsumeBool();
    const ProcessRole role = {is_worker, input.ConsumeIntegralInRange<uint32_t>(
                                             0, is_worker ? kWorkers - 1 : kShards + kSpares - 1)};
    const auto end = [&] {
      if (const auto gone = followers.extract(role); !gone.empty()) {
        coordinator.Forget(gone.mapped().get());
      }
    };
    switch (input.ConsumeIntegralInRange(0, 4)) {
      case 0:
        if (incarnations.contains(role)) break;
        incarnations[role] = ++incarnation;
        coordinator.Started(role);
        break;
      case 1:
        if (incarnations.erase(role) == 0) break;
        end();
        coordinator.Ended(role, "has ended", input.ConsumeBool(), input.ConsumeBool());
        break;
      case 2:
        clock.Advance(absl::Milliseconds(input.ConsumeIntegralInRange(0, 60'000)));
        coordinator.Poll();
        break;
      default:
        if (!incarnations.contains(role)) break;
        ProcessState state;
        (is_worker ? state.set_worker(role.index) : state.set_ps(role.index));
        state.set_incarnation(incarnations[role]);
        state.set_config_fingerprint(5);
        state.set_view(coordinator.view().number());
        Vary(input, 3, &state);
        auto& follower = followers[role];
        if (follower == nullptr) follower = std::make_unique<Follower>();
        if (!coordinator.Heard(follower.get(), state).ok()) end();
        coordinator.Poll();
    }
    const View view = coordinator.view();
    for (const SlotView& slot : view.slot()) {
      Require(slot.primary().process() < kShards + kSpares, "a primary is a process of the run");
    }
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  evenshard::Check(input);
  return 0;
}
