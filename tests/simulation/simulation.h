#ifndef EVENSHARD_TESTS_SIMULATION_SIMULATION_H_
#define EVENSHARD_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/simulation/context.h"
#include "tests/simulation/control/coordinator.h"
#include "tests/simulation/ps_process.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/worker_process.h"

namespace evenshard {

// What came of a simulated run.
struct Outcome {
  std::string violation = {};  // empty if all was well
  // How the run ended: "finished", or why it had to fail.
  std::string end = {};
  std::vector<std::vector<ChangeRecord>> history = {};  // by chunk: what led to the end
  bool whole_worker_set = true;                         // all workers counted in all iterations
  absl::Duration lasted = {};                           // virtual
  uint64_t steps = 0;
  std::deque<std::string> lines = {};  // the last ones of the account
  Coverage coverage = {};
};

// One run of a scenario's cluster with some faults, from its start to its end, which may take
// several starts of everything. Used once.
class Simulation {
 public:
  Simulation(const Scenario& scenario, const PlannedConfig* config, std::vector<Fault> faults,
             Plant plant, bool verbose);
  ~Simulation();

  Outcome Run();

 private:
  void StartAll();
  void KillAll(const std::string& why);
  void StartProcess(int node);
  void RestartLater(int node);
  // Ends a process, and tells launch.
  void EndProcess(int node, const std::string& why, bool by_signal);
  // Does something after a while, as whoever starts the processes.
  void Supervise(absl::Duration delay, std::function<void()> run);
  // Has those faults strike whose time counts from now, and keeps the run going for them.
  void Schedule(bool at_end);
  void Strike(const Fault& fault);
  // Whether the run must go on meanwhile: shards do not reach each other, and need nothing from one
  // another but copies.
  bool GoesOn(const Fault& fault) const;
  // Whether this says that a time limit has passed, and something kept the run from going on for
  // about as long.
  bool IsByTime(absl::string_view why) const;
  // Whether a worker was cut off, stopped or slow within that time, until now.
  bool WorkerWasDisturbed(absl::Duration window) const;
  // Whether a worker was cut off from both processes of a slot within that time, until now.
  bool WorkerLostSlot(absl::Duration window) const;
  // Whether a run may fail for this reason, given what has happened.
  std::string JudgeFailure(const absl::Status& failure) const;
  // How many checkpoints on the disk are complete and not damaged.
  int WholeCheckpoints() const;
  // The folder of the newest checkpoint, or nothing.
  std::string NewestFolder() const;
  uint64_t NewIncarnation() { return ++incarnations_; }

  const Scenario scenario_;
  const std::vector<Fault> faults_;
  Context context_;
  World& world_;

  std::map<int, std::unique_ptr<PsProcess>> ps_;           // by node
  std::map<int, std::unique_ptr<WorkerProcess>> workers_;  // by node
  std::map<int, bool> done_;                               // workers that have ended well, by node
  std::unique_ptr<Coordinator> coordinator_;
  uint64_t incarnations_ = 0;
  uint64_t runs_ = 0;

  std::map<int, absl::Time> away_until_;  // by node
  absl::Time limit_;                      // when the run must have ended
  bool has_trained_ = false;              // some worker, to the end
  // What has happened, by which a failure is judged.
  int ps_deaths_ = 0;
  int worker_deaths_ = 0;  // but for those that gave up and need not have
  bool disk_failed_ = false;
  // For how long the coordinator was away.
  absl::Duration longest_wait_;
  bool was_disturbed_ = false;  // somebody was cut off, stopped or slow
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_SIMULATION_H_
