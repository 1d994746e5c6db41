#ifndef EVENSHARD_TESTS_SIMULATION_COORDINATOR_H_
#define EVENSHARD_TESTS_SIMULATION_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/checkpoint/folder_owner.h"
#include "common/control/view/view_coordinator.h"
#include "tests/simulation/context.h"

namespace evenshard {

// Who makes the views of a simulated run: the real ViewCoordinator, in one of two hosts.
//
// launch sees at once when a process has died, and kills a process that is silent for
// recovery.silence_seconds before it counts as gone.
//
// etcd gives each process a lease. One that runs out is all that is noticed of a process, which may
// go on without knowing. The coordinator is one of several; when it stops, another one goes on from
// the last view. What etcd itself has is never lost here.
class Coordinator {
 public:
  // A process that has opened a connection.
  struct Peer {
    NodeRef node;
    int number = 0;  // counts the connections of this start
    std::shared_ptr<Connection> connection;
    // Run at the process.
    std::function<void(const View&)> on_view;
    std::function<void(absl::Time asked)> on_lease;
    std::function<void(const std::string& why)> on_end;
  };

  struct Options {
    Context* context = nullptr;
    NodeRef node;
    uint64_t run = 0;
    // Kills a process, which is started again later.
    std::function<void(int node, const std::string& why)> kill;
  };

  explicit Coordinator(Options options);

  absl::Duration silence() const { return silence_; }

  // What processes send. Called at the coordinator's node.
  void Opened(const Peer& peer);
  void Said(NodeRef node, const std::string& state);
  void Heard(NodeRef node, absl::Time asked);

  // launch: a process has ended.
  void Died(NodeRef node, uint64_t incarnation, const std::string& why);
  // etcd: the coordinator does nothing until then, and another one goes on.
  void ReplaceCoordinator(absl::Time until);
  // Whether a process of this node may be started.
  bool MayStart(int node) const;

  const View& view() const { return published_; }
  const absl::Status& failure() const { return failure_; }
  bool finished() const { return finished_; }
  // Whether every slot has had a whole copy at once.
  bool has_had_copies() const { return has_had_copies_; }
  // With etcd: how many processes have lost their lease.
  int lost_leases() const { return lost_leases_; }

  void AfterEvent();

 private:
  struct Process {
    Peer peer;
    uint64_t incarnation = 0;
    ProcessState state;
    bool has_said = false;
    absl::Time heard;
  };

  absl::Time Now() const { return context_.world.clock(options_.node.node).Now(); }
  bool IsWorker(int node) const { return node >= context_.scenario.processes(); }
  void MakeCoordinator();
  absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Newest(bool passes_over_unreadable);
  void Gone(int node, uint64_t incarnation, const std::string& why, absl::Time since);
  void Tick();
  void Publish();
  void TellView(const Peer& peer) const;

  const Options options_;
  Context& context_;
  const absl::Duration silence_;
  const std::unique_ptr<Storage> storage_;
  ViewCoordinator::Settings settings_;
  std::unique_ptr<FolderOwner> owner_;
  std::optional<ViewCoordinator> coordinator_;
  std::map<int, Process> processes_;  // by node
  View published_;
  absl::Time ticked_ = absl::InfinitePast();
  absl::Status failure_;
  bool finished_ = false;
  bool has_had_copies_ = false;
  int lost_leases_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_COORDINATOR_H_
