#ifndef EVENSHARD_SERVER_SESSION_POLICY_VIEW_H_
#define EVENSHARD_SERVER_SESSION_POLICY_VIEW_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "server/session/worker_sets.h"

namespace evenshard {

// The part of a view that the update policy of a slot's primary needs.
struct PolicyView {
  uint64_t number = 0;  // 0: the run has no views
  std::shared_ptr<const WorkerSets> worker_sets = nullptr;
  bool worker_set_changes = false;  // see View.worker_set_changes
  bool handing_over = false;        // no push is taken
  // The ranks that have finished, or are lost and not waited for.
  std::vector<uint32_t> left = {};
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_POLICY_VIEW_H_
