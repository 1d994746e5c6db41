#ifndef EVENSHARD_TESTS_SIMULATION_COORDINATOR_LINK_H_
#define EVENSHARD_TESTS_SIMULATION_COORDINATOR_LINK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/view.pb.h"
#include "tests/simulation/context.h"

namespace evenshard {

// A process's tie to the coordinator over the simulated network, as ViewLink is. It says now and
// then that the process is alive, which with etcd keeps its lease.
class CoordinatorLink {
 public:
  CoordinatorLink(Context* context, NodeRef node) : context_(*context), node_(node) {}

  // REQUIRES: called once.
  void Start(std::function<void(const View&)> on_view);
  void Announce(const ProcessState& state);
  // See ViewLink.
  bool HoldsRoles() const;

 private:
  void Connect();
  void Beat();

  Context& context_;
  const NodeRef node_;
  std::function<void(const View&)> on_view_;
  std::shared_ptr<Connection> connection_;
  int connections_ = 0;
  std::string state_;                              // serialised; empty: none yet
  absl::Time lease_until_ = absl::InfinitePast();  // with etcd
  absl::Time next_beat_ = absl::InfinitePast();    // for Plant::kBeatsByTimeOfDay
  uint64_t view_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_COORDINATOR_LINK_H_
