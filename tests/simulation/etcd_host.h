#ifndef EVENSHARD_TESTS_SIMULATION_ETCD_HOST_H_
#define EVENSHARD_TESTS_SIMULATION_ETCD_HOST_H_

#include <memory>
#include <optional>
#include <string>

#include "tests/simulation/coordinator.h"

namespace evenshard {

// etcd, in short: it gives each process a lease. One that runs out is all that is noticed of a
// process, which may go on without knowing. The coordinator is one of several; when it stops,
// another one goes on from the last view. What etcd itself has is never lost here.
class EtcdHost final : public Coordinator {
 public:
  explicit EtcdHost(Options options);

  void Heard(NodeRef node, absl::Time asked) override;
  bool MayStart(int node) const override { return !processes_.contains(node); }
  // Another coordinator takes over then.
  void StandStill(absl::Time until) override;
  bool may_lock_folder() const override { return coordinator_.has_value() && former_ == nullptr; }
  int lost_leases() const override { return lost_leases_; }
  void AfterEvent() override;

 private:
  // Until the lease of the start before has run out.
  bool IsTaken(const Process& process, const Peer& peer) const override {
    return !(process.peer.node == peer.node);
  }
  absl::Status Seen(Process* process) override;
  // Begins the term of the next coordinator, or tries again later.
  void BeginTerm();
  void MakeCoordinator();
  void Gone(int node, uint64_t incarnation, const std::string& why, absl::Time since);
  void Tick();

  std::optional<ViewCoordinator> coordinator_;
  std::unique_ptr<RunCheckpoints> former_;  // of the coordinator before, which is slow to end
  int lost_leases_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_ETCD_HOST_H_
