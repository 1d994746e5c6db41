#ifndef EVENSHARD_TESTS_SERVER_RECOVERY_CHECKPOINTER_FIXTURE_H_
#define EVENSHARD_TESTS_SERVER_RECOVERY_CHECKPOINTER_FIXTURE_H_

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/folder_owner.h"
#include "server/recovery/initial_state.h"
#include "tests/server/recovery/slot_fixture.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {

// Two slots on two processes, which write to one disk.
class CheckpointerFixture : public SlotFixture {
 public:
  void Begin(std::vector<std::string> overrides) {
    overrides.push_back("recovery.checkpoint.folder=\"/run\"");
    Start(overrides, /*processes=*/2, &disk);
    folder = config->proto().recovery().checkpoint().folder();
    auto taken = FolderOwner::Take(&disk, folder, view.run(), "the test");
    INFO(taken.status().ToString());
    REQUIRE(taken.ok());
    owner = *std::move(taken);
    const bool replicates = config->proto().recovery().replicas() > 0;
    Roles(0, Process(0, 10), replicates ? Process(1, 11) : ProcessId(), replicates);
    Roles(1, Process(1, 11), replicates ? Process(0, 10) : ProcessId(), replicates);
    Publish();
  }
  void TrainAll(uint64_t iteration) {
    for (int slot = 0; slot < 2; ++slot) Train(slot, iteration);
  }
  // Worker 0 registers a state that counts before the iteration.
  void Keep(uint64_t iteration) {
    const StatesByName state{{"scheduler", std::to_string(iteration)}};
    REQUIRE(Primary(0)->store().registered_states().Keep(0, iteration, state).ok());
  }
  // Writes whatever can be written.
  void WorkAll() {
    for (int slot = 0; slot < 2; ++slot) Work(slot);
    for (const auto& [process, host] : hosts) host->Tick();
    for (int slot = 0; slot < 2; ++slot) Work(slot);
  }
  void Work(int slot) {
    while (hosts[slot]->Work()) {
    }
  }
  std::vector<SlotState> States() { return {PrimaryState(0), PrimaryState(1)}; }
  std::vector<SlotState> Restored(const CheckpointId& id) {
    std::vector<SlotState> states;
    for (int slot = 0; slot < 2; ++slot) {
      const auto state = MakeInitialState(*config, slot, &disk, id.ToString());
      INFO(state.status().ToString());
      REQUIRE(state.ok());
      states.push_back(StateOf(**state));
    }
    return states;
  }
  std::optional<CheckpointId> Newest() {
    const auto newest = CheckpointFolder(&disk, folder).Newest(Verification::kFull, false, nullptr);
    REQUIRE(newest.ok());
    return newest->has_value() ? std::optional((*newest)->id) : std::nullopt;
  }
  ShardStats::Recovery Stats(int slot = 0) {
    const auto stats = hosts[slot]->Stats(slot);
    REQUIRE(stats.ok());
    return stats->recovery();
  }

  SimulatedDisk disk;
  std::string folder;
  std::unique_ptr<FolderOwner> owner;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SERVER_RECOVERY_CHECKPOINTER_FIXTURE_H_
