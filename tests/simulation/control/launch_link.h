#ifndef EVENSHARD_TESTS_SIMULATION_CONTROL_LAUNCH_LINK_H_
#define EVENSHARD_TESTS_SIMULATION_CONTROL_LAUNCH_LINK_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/control/view/view_link.h"
#include "proto/view.pb.h"
#include "tests/simulation/context.h"

namespace evenshard {

// A process's link to launch over the simulated network, as common/control/view/coordinator_link.h
// is over gRPC. It says now and then that the process is alive.
class LaunchLink final : public ViewLink {
 public:
  // `context` must outlive the link.
  LaunchLink(Context* context, NodeRef node) : context_(*context), node_(node) {}

  void Start(Listener listener) override;
  void Announce(const ProcessState& state) override;
  bool HoldsRoles() const override { return true; }

 private:
  void Connect();
  void Beat();
  void Say();

  Context& context_;
  const NodeRef node_;
  Listener listener_;
  std::shared_ptr<Connection> connection_;
  int connections_ = 0;
  std::string state_;                            // serialised; empty: none yet
  absl::Time next_beat_ = absl::InfinitePast();  // for Plant::kBeatsByTimeOfDay
  uint64_t view_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CONTROL_LAUNCH_LINK_H_
