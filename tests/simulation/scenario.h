#ifndef EVENSHARD_TESTS_SIMULATION_SCENARIO_H_
#define EVENSHARD_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/config/config.h"

namespace evenshard {

// What is broken on purpose, to see that the oracle notices. Each stands between two real parts and
// makes one of them behave as if it had the fault, but for kInconsistentCut, an option of
// Checkpointer.
enum class Plant {
  kNone,
  kCountsRepeats,          // a shard counts a push again that it has counted
  kAnswersBeforeCopy,      // a primary answers before the copy has the change
  kLeavesOutSync,          // the disk has the data of a checkpoint only after a while
  kIgnoresViews,           // shards and copies take what is of another view
  kInconsistentCut,        // a slot writes the newest state of its chunks to a checkpoint
  kDealsByFirstWorkerSet,  // workers deal images by the worker set of the beginning
  kReportsFilledEarly,     // a primary says that its copy is complete before it is
  kHandsOverEarly,         // a primary hands a slot over before the copy has everything
  kBeatsByTimeOfDay,       // a process tells launch that it lives when the time of day says so
  kKeepsAll,               // the disk keeps what is removed
  kReadsWithoutSnapshot,   // a reader is given each chunk as it is
  kPublishesUnfenced,      // a coordinator publishes in etcd without a look at who else has
  kTrustsLease,            // a ps acts in its roles until it hears that its lease has ended
  kSettlesEarly,           // a worker counts what a push lost before it is answered
  kForgetsNorms,           // a replica does not learn the norms by which its chunks were clipped
  kAllowsStaleness,        // a shard lets workers get further ahead than SSP allows
  kForgetsSets,            // a replica does not learn whose gradients count (QUORUM)
  kMixesSets,              // a slot counts who has arrived there, beside those agreed on
  kIgnoresLate,            // a shard does not answer a push that is dropped
  kForgetsSent,            // a replica does not keep what workers were sent
  // What recovery was once found to do.
  kGivesUpLostSlots,  // a worker waits for a slot that nobody holds only as long as for a shard
  kHidesUnreachable,  // a primary does not say that it cannot reach its replica
  kGivesUpUntaken,    // a worker that is not part of the run fails it after a while
  kMovesCuts,         // an order moves a cut that nobody has reached yet
  kGivesThirdSlot,    // a process that holds two slots gets the replica of a third one
  kEndsWhenFinished,  // a worker that has finished ends before the training has
  kEndsAtReadErrors,  // a run ends when the newest checkpoint cannot be read
  kLeavesFolderFree,  // a process that did not get the folder's lock at once never gets it
};
// Those above, without kNone.
const std::vector<Plant>& AllPlants();
std::string PlantName(Plant plant);

// Something bad that happens.
struct Fault {
  enum class Kind {
    kCrash,         // a process crashes, between two events or in the middle of one
    kAway,          // a process crashes, and cannot be started for a while
    kPause,         // a process stops for a while
    kCut,           // nothing passes between two processes for a while, or not in one direction
    kSlow,          // a process's messages take long for a while
    kCrashAll,      // every process and the coordinator end; the run is started again
    kLosePower,     // the same, and the disk loses what it has not synced
    kFullDisk,      // the disk is full for a while
    kDiskErrors,    // some operations of the disk fail for a while
    kSlowDisk,      // the disk is slow for one process for a while
    kReadErrors,    // one file of the newest checkpoint cannot be read for a while
    kBitRot,        // one bit of a file of the newest checkpoint changes
    kStepClock,     // a machine's time of day is set
    kCoordinator,   // launch or etcd does nothing for a while, or the ps that etcd has elected
    kBreakStreams,  // all connections of a process break
  };

  Kind kind = Kind::kCrash;
  absl::Duration at = {};  // after the start
  bool at_end = false;     // `at` counts from when the first worker has trained to the end
  int node = 0;
  int other = 0;
  absl::Duration lasts;  // kStepClock: by how much the time of day is set
  bool one_way = false;  // kCut: only from `node` to `other`
  int effects = -1;  // kCrash: how many messages and changes of the disk still happen; -1: at once

  std::string ToString(const std::vector<std::string>& names) const;
};

// How large a cluster may be, and how long its training.
struct Extent {
  int slots = 4;
  int spares = 2;
  int workers = 5;
  int iterations = 200;
};

// A cluster and what befalls it, drawn from a seed.
struct Scenario {
  uint64_t seed = 0;
  Extent most;  // what was drawn beyond it was cut down to it

  // The cluster.
  int slots = 2;
  int spares = 0;
  int workers = 2;
  bool etcd = false;  // otherwise launch makes the views
  bool sync = true;
  std::optional<uint64_t> staleness = {};  // of SSP; without it and `sync` the policy is ASYNC
  std::optional<int> quorum = {};          // with `sync`: the policy is QUORUM
  bool has_checkpoints = false;
  int replicas = 0;
  bool clips = false;         // the mean gradient by its norm
  bool limits = false;        // each worker's gradient, by the norms of the others'
  bool weighs = false;        // gradients count by weights, as those of local steps do
  bool corrects = false;      // stale gradients
  int iterations = 10;        // 0: the training has epochs
  bool from_workers = false;  // they bring the model, and their programs know when training ends
  // With from_workers: every so-many-th exchange assigns values. 0: only the first one does.
  uint64_t assigns_every = 0;
  std::string config;  // in protobuf text format

  // Its pace.
  absl::Duration latency;
  absl::Duration compute;
  absl::Duration restart;  // until a process that has ended is started again
  // Faults last longer than every time-out, which are short, clocks run at rates of their own, and
  // with etcd whoever starts the processes does not know what the run needs.
  bool lasting = false;
  // With `lasting` and etcd: workers that have finished are started again at once, and not never.
  bool restarts_finished = false;

  // `duration` is how long the run takes without faults.
  std::vector<Fault> DrawFaults(absl::Duration duration) const;

  int processes() const { return slots + spares; }
  int nodes() const { return processes() + workers; }  // without the coordinator
  // How many iterations a run exchanges whose workers bring the model: one for that comes first.
  uint64_t exchanges() const { return 1 + iterations; }
  std::vector<std::string> NodeNames() const;
  std::string ToString() const;

 private:
  std::vector<Fault> DrawLastingFaults(absl::Duration duration) const;
};

Scenario DrawScenario(uint64_t seed, const Extent& most = {});
// Returns the faults of a scenario that can befall a smaller one of the same seed.
std::vector<Fault> FaultsIn(const Scenario& smaller, const Scenario& whole,
                            const std::vector<Fault>& faults);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_SCENARIO_H_
