#ifndef PS_WORKER_COMPUTE_CUDA_TIMELINE_H_
#define PS_WORKER_COMPUTE_CUDA_TIMELINE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/compute/cuda/device.h"
#include "worker/trace.h"

namespace ps {

// What a device does when, for a trace: marks in its streams, read when a pass is over. Without a
// trace it does nothing. Thread-safe. Throws CudaError.
class CudaTimeline {
 public:
  // `trace`, null for none, must outlive the timeline.
  explicit CudaTimeline(Trace* trace) : trace_(trace) {}

  // A pass begins: `stream` has nothing to do. Once before anything else too.
  void StartPass(cudaStream_t stream);

  // What is queued on `stream` from here to the End of the same row and layer. `what` must stay
  // valid for good.
  void Begin(Trace::Row row, absl::string_view what, int layer, cudaStream_t stream);
  void End(Trace::Row row, int layer, cudaStream_t stream);

  // Writes what the device has done to the trace; parameters that are still arriving go to the next
  // pass.
  void FinishPass(int64_t iteration);

 private:
  struct Span {
    Trace::Row row;
    absl::string_view what;
    int layer;
    CudaEvent begin{/*timing=*/true};
    CudaEvent end{/*timing=*/true};
    bool ended = false;
  };
  // A moment on both clocks.
  struct Anchor {
    CudaEvent event{/*timing=*/true};
    absl::Time time;
  };

  Trace* const trace_;
  absl::Mutex mutex_;
  std::list<Span> spans_ ABSL_GUARDED_BY(mutex_);
  // Of this pass and the one before it, in which uploads for this one may have begun.
  std::deque<Anchor> anchors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_TIMELINE_H_
