#ifndef EVENSHARD_COMMON_CONTROL_VIEW_RELAYED_LINK_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_RELAYED_LINK_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/control/view/view_link.h"
#include "proto/view.pb.h"

namespace evenshard {

// Keeps the latest view until its consumer starts, and then passes on that view and each later one.
// Thread-safe.
class RelayedLink final : public ViewLink {
 public:
  // Starts `link`, which must outlive this object and must not be started by anybody else.
  // `on_view` and `on_end` hear what comes until Start.
  RelayedLink(ViewLink* link, Listener early);

  void Start(Listener listener) override;
  void Announce(const ProcessState& state) override { link_->Announce(state); }
  bool HoldsRoles() const override { return link_->HoldsRoles(); }

 private:
  ViewLink* const link_;
  absl::Mutex mutex_;  // held while a listener is called, so that calls do not overlap
  Listener listener_ ABSL_GUARDED_BY(mutex_);
  std::optional<View> latest_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_RELAYED_LINK_H_
