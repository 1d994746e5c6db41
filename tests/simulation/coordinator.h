#ifndef EVENSHARD_TESTS_SIMULATION_COORDINATOR_H_
#define EVENSHARD_TESTS_SIMULATION_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/view_coordinator.h"
#include "proto/view.pb.h"
#include "tests/simulation/context.h"
#include "tools/launch/launch_coordinator.h"

namespace evenshard {

// Who makes the views of a simulated run: the real ViewCoordinator, in the host that the scenario
// has, LaunchHost or EtcdHost. This class has what they share: the tie to the processes, and the
// run's checkpoints.
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
    // launch kills a process, and starts one again, a while later.
    std::function<void(int node, const std::string& why)> kill;
    std::function<void(int node)> restart;
  };

  static std::unique_ptr<Coordinator> Start(Options options);
  virtual ~Coordinator() = default;

  absl::Duration silence() const { return silence_; }

  // What processes send. Called at the coordinator's node.
  void Opened(const Peer& peer);
  void Said(NodeRef node, const std::string& state);
  // etcd: a process renews its lease.
  virtual void Heard(NodeRef, absl::Time /*asked*/) {}

  // launch: a process is started, or has ended; `why` is empty if it has succeeded.
  virtual void Started(int /*node*/) {}
  virtual void Ended(NodeRef, const std::string& /*why*/, bool /*by_signal*/) {}
  // etcd: whether a process of this node may be started.
  virtual bool MayStart(int /*node*/) const { return true; }
  // The coordinator does nothing until then.
  virtual void StandStill(absl::Time until) = 0;

  const View& view() const { return published_; }
  const absl::Status& failure() const { return failure_; }
  bool finished() const { return finished_; }
  // Whether every slot has had a whole copy at once.
  bool has_had_copies() const { return has_had_copies_; }
  // Whether there is a coordinator, and no former one that may have the folder of checkpoints.
  virtual bool may_lock_folder() const { return true; }
  // With etcd: how many processes have lost their lease.
  virtual int lost_leases() const { return 0; }

  virtual void AfterEvent() = 0;

 protected:
  struct Process : LaunchCoordinator::Follower {
    Peer peer;
    uint64_t incarnation = 0;
    ProcessState state;
    bool has_said = false;
    absl::Time heard;
    bool view_is_due = false;

    void Send(const View&) override { view_is_due = true; }
  };

  explicit Coordinator(Options options);

  // Whether another start still has the place of the peer.
  virtual bool IsTaken(const Process& process, const Peer& peer) const = 0;
  // A process has said something.
  virtual absl::Status Seen(Process* process) = 0;
  // A process's connection has ended.
  virtual void Forget(Process*) {}

  absl::Time Now() const { return context_.world.clock(options_.node.node).Now(); }
  bool IsWorker(int node) const { return node >= context_.scenario.processes(); }
  Process* Find(NodeRef node);
  absl::StatusOr<std::unique_ptr<RunCheckpoints>> Open(RunCheckpoints::Start start);
  ViewCoordinator::NewestCheckpoint Newest();
  // Takes the present view over, and sends it where it is due.
  void Publish(const View& view, const std::vector<RecoveryEvent>& events);

  const Options options_;
  Context& context_;
  const absl::Duration silence_;
  const std::unique_ptr<Storage> storage_;
  ViewCoordinator::Settings settings_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  std::map<int, std::unique_ptr<Process>> processes_;  // by node
  View published_;
  absl::Status failure_;
  bool finished_ = false;

 private:
  // What planted faults make of what a process says, and of the view that is published next.
  void Tamper(ProcessState* state) const;
  void TamperWithView();
  void TellView(const Peer& peer) const;

  bool has_had_copies_ = false;
  // Whether the run could read the newest checkpoint when it began.
  const bool reads_newest_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_COORDINATOR_H_
