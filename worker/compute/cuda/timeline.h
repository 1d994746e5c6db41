#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_TIMELINE_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_TIMELINE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/compute/cuda/device.h"
#include "worker/trace/trace.h"

namespace evenshard {

// Records for a trace when a device does what. It puts events into the device's streams and reads
// their times when the pass is over. Without a trace it does nothing. Thread-safe. Throws
// CudaError.
class CudaTimeline {
 public:
  // `trace` must outlive the timeline. It may be null, for no trace.
  explicit CudaTimeline(Trace* trace) : trace_(trace) {}

  // Starts a pass. REQUIRES: `stream` is idle. One call must come before all other methods, since
  // uploads may begin before the first pass.
  void StartPass(cudaStream_t stream);

  // Begin and End enclose the work on `stream` that makes up one span of a row and layer. `what`
  // must outlive the timeline, as a string literal does.
  void Begin(Trace::Row row, absl::string_view what, int layer, cudaStream_t stream);
  void End(Trace::Row row, int layer, cudaStream_t stream);

  // Writes the spans that the device has finished to the trace. Uploads of parameters that are
  // still under way are left for the next call.
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
  // A moment on the device's clock and on the trace's.
  struct Anchor {
    CudaEvent event{/*timing=*/true};
    absl::Time time;
  };

  Trace* const trace_;
  absl::Mutex mutex_;
  std::list<Span> spans_ ABSL_GUARDED_BY(mutex_);
  // The starts of this pass and of the one before it, in which uploads for this pass may have
  // begun.
  std::deque<Anchor> anchors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_TIMELINE_H_
