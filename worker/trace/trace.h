#ifndef EVENSHARD_WORKER_TRACE_TRACE_H_
#define EVENSHARD_WORKER_TRACE_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/model/model.h"

namespace evenshard {

// Records what a worker does when, layer by layer, in a file for Perfetto or about:tracing. The
// file is a JSON array in Google's Trace Event Format. The worker's rank stands for the process, so
// that the traces of several workers on one machine can be joined. Thread-safe.
//
// Events are written as they happen, through a buffer. The file of a worker that was killed lacks
// the end of the array, which both viewers accept. After an error nothing more is written: a full
// disk does not end the training.
class Trace {
 public:
  // The layer of an event that concerns the whole iteration.
  static constexpr int kWhole = -1;

  // A row of the picture, in which one thing is done after another.
  enum class Row {
    kThread,      // the training thread; with a device, it queues work and waits for it
    kCompute,     // the device's computation
    kToDevice,    // copies from the host to the device
    kFromDevice,  // copies from the device to the host
  };

  // Opens `path` for writing. `model` and `clock` must outlive the trace.
  // Errors: those of the system if the file cannot be written, UNKNOWN if the system names none.
  static absl::StatusOr<std::unique_ptr<Trace>> Create(const std::string& path, int rank,
                                                       const Model* model, const Clock* clock);

  ~Trace();

  absl::Time Now() const { return clock_->Now(); }

  // Records what `row` did from `begin` to `end`. Two spans of one row must be disjoint or nested.
  void Span(Row row, absl::string_view what, int layer, int64_t iteration, absl::Time begin,
            absl::Time end);
  // Record that something begins or ends now which is not part of a row, such as the push of a
  // layer. The events of different layers may overlap.
  void Begin(absl::string_view what, int layer, int64_t iteration);
  void End(absl::string_view what, int layer, int64_t iteration);

  // Completes the file, to which nothing may be added afterwards. Errors: that of the first write
  // that failed (RESOURCE_EXHAUSTED if no space is left on the device).
  absl::Status Close();

 private:
  Trace(const std::string& path, int rank, const Model* model, const Clock* clock);

  void AddBeside(absl::string_view phase, absl::string_view what, int layer, int64_t iteration);
  void Add(Row row, absl::string_view what, int layer, int64_t iteration, const std::string& rest);
  void Write(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps the error in errno as `write_status_` if a call on the file was not `ok`.
  void NoteResult(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const int rank_;
  const Clock* const clock_;
  std::vector<std::string> layer_names_;  // escaped for JSON

  absl::Mutex mutex_;
  std::FILE* file_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: not open, or closed
  absl::Status write_status_ ABSL_GUARDED_BY(mutex_);  // the first error
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRACE_TRACE_H_
