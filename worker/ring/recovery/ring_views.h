#ifndef EVENSHARD_WORKER_RING_RECOVERY_RING_VIEWS_H_
#define EVENSHARD_WORKER_RING_RECOVERY_RING_VIEWS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/control/view/view_link.h"
#include "common/placement/planned_config.h"
#include "proto/view.pb.h"

namespace evenshard {

// A worker's side of the views of a ring with recovery (common/control/view/ring_members.h). Each
// generation is a ring of its own: its workers connect when the view says that all of them have
// nothing of earlier rings any more. Thread-safe; one thread calls the methods that wait.
class RingViews {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    int rank = 0;
    ViewLink* link = nullptr;  // is started; may outlive this
    // Makes waits return CANCELLED soon.
    std::stop_token stop = {};
  };

  explicit RingViews(const Options& options);
  // `on_later` of Await is not called any more.
  ~RingViews();

  // Says that this worker has nothing of earlier rings any more, waits until all workers of the
  // latest generation say so, and returns the view that says it. From then on `on_later` is called
  // once, by any thread, when a later generation is heard of. It must not call this object.
  // Errors: FAILED_PRECONDITION if the run goes on without this worker; why it has ended.
  absl::StatusOr<View> Await(std::function<void()> on_later);

  // Whether a generation after the one of Await is heard of before `patience` is over.
  bool IsLater(absl::Duration patience);
  // What the latest generation begins from, for errors: "checkpoint NAME" or "the initial
  // parameters".
  std::string Beginning() const;

  // Says that this worker has trained to the end, and waits until all have, or a later generation
  // begins, and returns whether it does. Errors: why the run has ended.
  absl::StatusOr<bool> Finish();

  // Says why the run fails.
  void Fail(const absl::Status& reason);

 private:
  // Outlives this object, since the link may still call it.
  struct Heard {
    void OnView(const View& next);
    void OnEnd(const absl::Status& reason);
    absl::StatusOr<View> Await(const Options& options, std::function<void()> on_later);
    absl::StatusOr<bool> Finish(const std::stop_token& stop);
    // Waits until `is_over`, the run has ended or a stop is requested. Errors: of the latter two.
    absl::Status Wait(const absl::Condition& is_over, const std::stop_token& stop)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void Announce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { link->Announce(state); }
    bool IsLater() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return view.generation() > formed; }

    absl::Mutex mutex;
    ViewLink* link ABSL_GUARDED_BY(mutex) = nullptr;
    View view ABSL_GUARDED_BY(mutex);
    absl::Status end ABSL_GUARDED_BY(mutex);
    ProcessState state ABSL_GUARDED_BY(mutex);   // that was announced last
    uint64_t formed ABSL_GUARDED_BY(mutex) = 0;  // the generation of Await
    std::function<void()> later ABSL_GUARDED_BY(mutex);
  };

  const Options options_;
  const std::shared_ptr<Heard> heard_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_RECOVERY_RING_VIEWS_H_
