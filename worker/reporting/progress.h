#ifndef EVENSHARD_WORKER_REPORTING_PROGRESS_H_
#define EVENSHARD_WORKER_REPORTING_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// How long the training is, as far as it is known.
struct TrainingLength {
  int64_t iterations = 0;
  // Returns the epoch of an iteration, both counted from 0. Must be thread-safe.
  std::function<int64_t(int64_t iteration)> epoch = [](int64_t) { return 0; };
};

// The figures of one iteration of the training loop.
struct IterationProgress {
  int64_t iteration = 0;  // the number of iterations that have finished, including this one
  double loss = 0;
  int64_t images = 0;
  double compute_seconds = 0;
  double exchange_wait_seconds = 0;  // waiting for the shards with nothing to compute
};

// Shows the progress of training. On a terminal this is one line with a bar, redrawn at most ten
// times a second. If the output is a pipe or a file, it is a plain line every five seconds. Flush
// shows the latest iteration in any case.
//
// Rates, shares of the time and the time left are averages over the last ten seconds or so, in
// which older iterations count less. Time that is spent neither computing nor waiting, most of it
// on reading images, is the rest to 100 %. While the exchange is stalled, the line says which
// shards are waited for. Thread-safe.
class ProgressReporter {
 public:
  struct Options {
    std::FILE* output = stdout;
    bool terminal = false;
    std::function<int()> columns = {};  // returns the terminal's width; called at each redraw
    TrainingLength length = {};
  };

  // Returns options for `output`, stdout or stderr, with the properties of its terminal if it is
  // one.
  static Options ForOutput(std::FILE* output);

  // Starts to measure time. `clock` and options.output must outlive the reporter.
  ProgressReporter(const Options& options, const Clock* clock);
  ~ProgressReporter() { Flush(); }

  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  // Replaces Options::length, which changes when workers come and go.
  void SetLength(const TrainingLength& length);

  // Must be called after each iteration, in order.
  void Report(const IterationProgress& progress);

  // Shows that the iteration after `finished` ones has waited for `waited` so far, and for what.
  void ReportWait(int64_t finished, absl::Duration waited, absl::string_view what);

  // Shows the latest iteration if it is not shown yet, and ends the line. Must be called before
  // anything else is written to the same terminal.
  void Flush();

 private:
  absl::Duration ShowInterval() const;
  void Show(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The numbers of a line as text, or "-" if they are not known yet.
  struct Figures {
    std::string epoch;      // "1/3"
    std::string iteration;  // "20/300"
    std::string images_per_second = "-";
    std::string compute_percent = "-";
    std::string wait_percent = "-";
    std::string time_left = "-";
  };
  Figures Summary() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string PlainLine() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string TerminalLine() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock* const clock_;

  absl::Mutex mutex_;
  TrainingLength length_ ABSL_GUARDED_BY(mutex_);
  IterationProgress latest_ ABSL_GUARDED_BY(mutex_);
  std::string wait_ ABSL_GUARDED_BY(mutex_);      // the wait since the latest report; empty if none
  absl::Time reported_ ABSL_GUARDED_BY(mutex_);   // when the latest report came
  absl::Time shown_ ABSL_GUARDED_BY(mutex_);      // when a line was last written
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;  // the latest report is not shown yet
  bool line_open_ ABSL_GUARDED_BY(mutex_) = false;  // the terminal's cursor is behind a line
  // Sums in which older iterations count less.
  double seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double iterations_ ABSL_GUARDED_BY(mutex_) = 0;
  double images_ ABSL_GUARDED_BY(mutex_) = 0;
  double compute_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double exchange_wait_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Returns the two largest units of a duration: "8s", "1m 05s", "2h 07m", "3d 04h".
std::string ShortDuration(absl::Duration duration);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_REPORTING_PROGRESS_H_
