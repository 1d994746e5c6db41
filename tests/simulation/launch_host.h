#ifndef EVENSHARD_TESTS_SIMULATION_LAUNCH_HOST_H_
#define EVENSHARD_TESTS_SIMULATION_LAUNCH_HOST_H_

#include <string>
#include <vector>

#include "tests/simulation/coordinator.h"
#include "tools/launch/launch_coordinator.h"

namespace evenshard {

// launch: the real LaunchCoordinator, and in the place of the supervisor one that starts again and
// kills what it says. It sees at once when a process has ended.
class LaunchHost final : public Coordinator {
 public:
  explicit LaunchHost(Options options);

  void Started(int node) override;
  void Ended(NodeRef node, const std::string& why, bool by_signal) override;
  void StandStill(absl::Time until) override;
  void AfterEvent() override;

 private:
  bool IsTaken(const Process&, const Peer&) const override { return false; }
  absl::Status Seen(Process* process) override { return launch_.Heard(process, process->state); }
  void Forget(Process* process) override { launch_.Forget(process); }
  ProcessRole RoleOf(int node) const;
  int NodeOf(ProcessRole role) const;
  void Poll();

  LaunchCoordinator launch_;
  std::vector<RecoveryEvent> events_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_LAUNCH_HOST_H_
