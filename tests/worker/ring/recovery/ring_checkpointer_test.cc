#include "worker/ring/recovery/ring_checkpointer.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/checkpoint/folder_owner.h"
#include "tests/testing/await.h"
#include "tests/testing/simulated_disk.h"
#include "tests/worker/ring/core/ring_of_rounds.h"

namespace evenshard {
namespace {

constexpr uint64_t kRun = 7;
constexpr int kWorkers = 2;

// The workers of a ring, which write to one disk.
class CheckpointedRing {
 public:
  CheckpointedRing()
      : ring_(RingConfigOf(kWorkers, kSmallRingModel,
                           {"optimizer={kind: ADAM learning_rate: 0.01}",
                            "recovery={checkpoint {folder: '/c' every_iterations: 1 keep: 2}}"})) {
    auto owner = FolderOwner::Take(&disk, "/c", kRun, "a test");
    REQUIRE(owner.ok());
    owner_ = *std::move(owner);
    View view;
    view.set_number(1);
    view.set_generation(1);
    view.set_run(kRun);
    view.add_worker_set();
    for (int rank = 0; rank < kWorkers; ++rank) view.mutable_worker_set(0)->add_rank(rank);
    for (int rank = 0; rank < kWorkers; ++rank) {
      checkpointers_.push_back(std::make_unique<RingCheckpointer>(
          RingCheckpointer::Options{.config = &ring_.config(),
                                    .part = ring_.worker(rank).part.get(),
                                    .storage = &disk,
                                    .clock = &clock_,
                                    .view = view}));
    }
  }

  void TakeCut(int rank, int64_t iteration) {
    checkpointers_[rank]->TakeCut(iteration, ring_.worker(rank).parameters);
  }
  void Finish(int rank) { checkpointers_[rank]->Finish(); }

  // Those in the folder, as "1 complete".
  std::vector<std::string> Checkpoints() {
    const auto found = CheckpointFolder(&disk, "/c").List();
    REQUIRE(found.ok());
    std::vector<std::string> texts;
    for (const CheckpointInfo& info : *found) {
      const bool is_complete = info.state == CheckpointInfo::State::kComplete;
      texts.push_back(absl::StrCat(info.id.iteration, is_complete ? " complete" : " incomplete"));
    }
    return texts;
  }

  SimulatedDisk disk;

 private:
  RingOfRounds ring_;
  const RealClock clock_;
  std::unique_ptr<FolderOwner> owner_;
  std::vector<std::unique_ptr<RingCheckpointer>> checkpointers_;
};

// Fails the files of worker 1's part.
absl::Status IsFull(SimulatedDisk::Operation operation, const std::string& path) {
  return operation == SimulatedDisk::Operation::kCreate && absl::StrContains(path, "shard-1-of-2")
             ? absl::ResourceExhaustedError("the disk is full")
             : absl::OkStatus();
}

}  // namespace

TEST_CASE("of a ring's checkpoint that one worker cannot write nothing stays") {
  CheckpointedRing ring;
  ring.disk.SetFault(IsFull);
  SECTION("where the other has written its part before") {
    ring.TakeCut(0, 1);
    AwaitTrue([&] {
      return ring.disk.Files().contains(
          "/c/generation-0001-iteration-0000000001/shard-0-of-2.json");
    });
    ring.TakeCut(1, 1);
    ring.Finish(1);
    CHECK(ring.Checkpoints().empty());
  }
  SECTION("where the other writes its part afterwards, as soon as the next one is due") {
    ring.TakeCut(1, 1);
    ring.Finish(1);
    ring.TakeCut(0, 1);
    AwaitTrue([&] { return ring.Checkpoints() == std::vector<std::string>{"1 incomplete"}; });
  }
  ring.disk.SetFault(nullptr);
  for (const int rank : {0, 1}) ring.TakeCut(rank, 2);
  for (const int rank : {0, 1}) ring.Finish(rank);
  CHECK(ring.Checkpoints() == std::vector<std::string>{"2 complete"});
}

TEST_CASE("old checkpoints of a ring are removed, whichever worker is the last to write") {
  CheckpointedRing ring;
  for (int iteration = 1; iteration <= 5; ++iteration) {
    // Worker 0 waits for the other one, until its next cut.
    ring.TakeCut(0, iteration);
    AwaitTrue([&] {
      return ring.disk.Files().contains(
          absl::StrCat("/c/generation-0001-iteration-000000000", iteration, "/shard-0-of-2.json"));
    });
    ring.TakeCut(1, iteration);
    ring.Finish(1);
    CHECK(ring.Checkpoints().size() <= 2);
  }
}

}  // namespace evenshard
