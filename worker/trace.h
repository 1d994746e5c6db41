#ifndef PS_WORKER_TRACE_H_
#define PS_WORKER_TRACE_H_

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
#include "common/clock.h"
#include "common/model.h"

namespace ps {

// A file of what a worker does when, layer by layer, to look at in Perfetto or about:tracing: the
// JSON array of Google's Trace Event Format. The worker's rank is the process, so that the traces
// of several workers of one machine can be joined. Thread-safe.
//
// Written as it happens, through a buffer; a file that a killed worker left lacks the array's end,
// which its readers do without. After an error nothing more is written: a full disk does not end
// the training.
class Trace {
 public:
  // In place of a layer: something of the whole iteration.
  static constexpr int kWhole = -1;

  // Who does one thing after the other.
  enum class Row {
    kThread,    // the thread that trains; beside a device it queues work and waits for it
    kCompute,   // a device
    kToDevice,  // its copies from the host
    kFromDevice,
  };

  // `model` and `clock` must outlive the trace. Errors: UNKNOWN or the like where the file cannot
  // be written.
  static absl::StatusOr<std::unique_ptr<Trace>> Create(const std::string& path, int rank,
                                                       const Model* model, const Clock* clock);

  ~Trace();

  absl::Time Now() const { return clock_->Now(); }

  // What `row` did from `begin` to `end`. The spans of a row lie apart or one in another.
  void Span(Row row, absl::string_view what, int layer, int64_t iteration, absl::Time begin,
            absl::Time end);
  // What goes on beside it; of different layers at once.
  void Begin(absl::string_view what, int layer, int64_t iteration);
  void End(absl::string_view what, int layer, int64_t iteration);

  // Ends the file. Nothing may be added afterwards. Errors: the first of all that was written, with
  // its reason (RESOURCE_EXHAUSTED: no space is left on the device).
  absl::Status Close();

 private:
  Trace(const std::string& path, int rank, const Model* model, const Clock* clock);

  void AddBeside(absl::string_view phase, absl::string_view what, int layer, int64_t iteration);
  void Add(Row row, absl::string_view what, int layer, int64_t iteration, const std::string& rest);
  void Write(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps errno in `written_` where a call on the file was not `ok`.
  void NoteWritten(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const int rank_;
  const Clock* const clock_;
  std::vector<std::string> layer_names_;  // escaped for JSON

  absl::Mutex mutex_;
  std::FILE* file_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: not open, or closed
  absl::Status written_ ABSL_GUARDED_BY(mutex_);       // the first error
};

}  // namespace ps

#endif  // PS_WORKER_TRACE_H_
