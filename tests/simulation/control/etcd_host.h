#ifndef EVENSHARD_TESTS_SIMULATION_CONTROL_ETCD_HOST_H_
#define EVENSHARD_TESTS_SIMULATION_CONTROL_ETCD_HOST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/control/etcd/etcd_keys.h"
#include "tests/simulation/control/coordinator.h"

namespace evenshard {

// A simulated etcd, at the coordinator's node, and what the simulation sees of the run in it. The
// candidates for coordinator are in the ps processes. What etcd has is never lost: it stays when
// everything is killed, and whoever operates a run that has failed begins another one.
class EtcdHost final : public Coordinator {
 public:
  explicit EtcdHost(Options options);

  std::unique_ptr<ViewLink> MakeLink(NodeRef node) override;
  // Whether a ps is told to begin a new run from the newest checkpoint.
  bool resumes() const { return resumes_; }
  // A ps that has been elected cannot use the folder of checkpoints.
  void CandidateFailed(const absl::Status& failure);

  // Either etcd answers nobody until then, or the ps that makes the views stops.
  void StandStill(absl::Time until) override;
  bool may_lock_folder() const override;
  int lost_leases() const override { return lost_leases_; }
  bool was_replaced() const override { return was_replaced_; }
  absl::Duration longest_absence() const override { return longest_absence_; }
  void AfterEvent() override;

 private:
  // The ps that makes the views, if one runs that does.
  std::optional<NodeRef> Elected() const;
  void Lost(const std::string& key, NodeRef holder);
  void LookForCoordinator();
  void Tick();

  const EtcdKeys keys_;
  bool resumes_;
  int lost_leases_ = 0;
  int64_t term_ = 0;  // the revision at which the coordinator's key was created
  bool was_replaced_ = false;
  absl::Time seen_;  // when there last was a coordinator
  absl::Duration longest_absence_;
  int64_t revision_ = 0;  // of the view that was published last
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CONTROL_ETCD_HOST_H_
