#ifndef EVENSHARD_COMMON_CONTROL_VIEW_VIEW_LINK_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_VIEW_LINK_H_

#include <functional>

#include "absl/status/status.h"
#include "proto/view.pb.h"

namespace evenshard {

// A process's link to the coordinator of its run: launch on one machine, a ps elected through etcd
// on several. It tells the coordinator what the process is and where it stands, and hears each
// view. Thread-safe.
class ViewLink {
 public:
  // Called by one thread of the link at a time.
  struct Listener {
    // A view with a larger number than any before. Views in between may be left out.
    std::function<void(const View& view)> on_view;
    // The run has ended, or this process is not part of it: its place is another process's, its
    // config differs, or there is no coordinator any more. No call follows. The process should end.
    std::function<void(const absl::Status& reason)> on_end;
  };

  virtual ~ViewLink() = default;

  // Begins to follow the views. Called once, before any Announce. Does not block.
  virtual void Start(Listener listener) = 0;

  // Replaces the state that this process announces. Does not block: the latest state is delivered
  // as soon as it can be, and again after every interruption.
  virtual void Announce(const ProcessState& state) = 0;

  // Whether no later view can have taken this process's roles away without its knowledge. A
  // primary answers nobody while it is false. It is false, for example, when the process's lease in
  // etcd may have ended, because renewing it has failed for too long.
  virtual bool HoldsRoles() const = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_VIEW_LINK_H_
