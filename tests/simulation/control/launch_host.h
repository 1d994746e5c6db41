#ifndef EVENSHARD_TESTS_SIMULATION_CONTROL_LAUNCH_HOST_H_
#define EVENSHARD_TESTS_SIMULATION_CONTROL_LAUNCH_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/control/run_checkpoints.h"
#include "tests/simulation/control/coordinator.h"
#include "tools/launch/launch_coordinator.h"

namespace evenshard {

// launch: the real LaunchCoordinator with the run's checkpoints, and in the place of the supervisor
// one that starts again and kills what it says. It sees at once when a process has ended.
class LaunchHost final : public Coordinator {
 public:
  // A process that has opened a connection.
  struct Peer {
    NodeRef node;
    int number = 0;  // counts the connections of this start
    std::shared_ptr<Connection> connection;
    // Run at the process.
    std::function<void(const View&)> on_view;
    std::function<void(const absl::Status& why)> on_end;
  };

  explicit LaunchHost(Options options);

  std::unique_ptr<ViewLink> MakeLink(NodeRef node) override;

  // What processes send. Called at the coordinator's node.
  void Opened(const Peer& peer);
  void Said(NodeRef node, const std::string& state);

  void Started(int node) override;
  void Ended(NodeRef node, const std::string& why, bool by_signal) override;
  void StandStill(absl::Time until) override;
  void AfterEvent() override;

 private:
  struct Process : LaunchCoordinator::Follower {
    Peer peer;
    bool view_is_due = false;

    void Send(const View&) override { view_is_due = true; }
  };

  bool IsWorker(int node) const { return node >= context_.scenario.processes(); }
  Process* Find(NodeRef node);
  ViewCoordinator::Settings Settings();
  absl::StatusOr<std::unique_ptr<RunCheckpoints>> Open(RunCheckpoints::Start start);
  ViewCoordinator::NewestCheckpoint Newest();
  ProcessRole RoleOf(int node) const;
  int NodeOf(ProcessRole role) const;
  void Poll();

  const std::unique_ptr<Storage> storage_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  std::map<int, std::unique_ptr<Process>> processes_;  // by node
  LaunchCoordinator launch_;
  std::vector<RecoveryEvent> events_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CONTROL_LAUNCH_HOST_H_
