#ifndef PS_WORKER_PROGRESS_H_
#define PS_WORKER_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace ps {

// What one iteration of the training loop gave.
struct IterationProgress {
  int64_t iteration = 0;  // finished so far, this one included
  double loss = 0;
  int64_t images = 0;
  double compute_seconds = 0;
  double exchange_wait_seconds = 0;  // waiting for the shards with nothing to compute
};

// Shows how training goes: on a terminal one line with a bar, redrawn at most ten times
// a second; otherwise, when the output is piped or a file, a plain line every five
// seconds. The latest iteration is always shown in the end.
//
// Rates, shares of the time and the time left come from the last ten seconds or so:
// older iterations count less and less. What is neither computing nor waiting, reading
// images above all, is the rest to 100 %. While an iteration waits and nothing moves, the line says
// for whom instead. Thread-safe.
class ProgressReporter {
 public:
  struct Options {
    std::FILE* output = stdout;
    bool terminal = false;
    std::function<int()> columns = {};  // of the terminal, asked at each redraw
    int64_t total_iterations = 0;
    int64_t iterations_per_epoch = 1;
  };

  // `output` being stdout or stderr: whether it is a terminal, and how wide.
  static Options ForOutput(std::FILE* output);

  // `clock` and options.output must outlive the reporter. Starts the time.
  ProgressReporter(const Options& options, const Clock* clock);
  ~ProgressReporter() { Flush(); }

  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  // After each iteration, in order.
  void Report(const IterationProgress& progress);

  // While the iteration after `finished` ones waits: for how long by now, and for what.
  void ReportWait(int64_t finished, absl::Duration waited, absl::string_view what);

  // Shows the latest iteration if it is not shown yet and ends the line. Call it before
  // anything else is written to the same terminal.
  void Flush();

 private:
  absl::Duration ShowInterval() const;
  void Show(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The numbers of a line, as text; "-" where there are none yet.
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
  IterationProgress latest_ ABSL_GUARDED_BY(mutex_);
  std::string wait_ ABSL_GUARDED_BY(mutex_);        // since then, as text; empty: none
  absl::Time reported_ ABSL_GUARDED_BY(mutex_);     // when the latest report came
  absl::Time shown_ ABSL_GUARDED_BY(mutex_);        // when a line was last written
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;    // the latest report is not shown yet
  bool line_open_ ABSL_GUARDED_BY(mutex_) = false;  // the terminal's cursor is behind a line
  // Sums in which what is older counts less.
  double seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double iterations_ ABSL_GUARDED_BY(mutex_) = 0;
  double images_ ABSL_GUARDED_BY(mutex_) = 0;
  double compute_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double exchange_wait_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

// "8s", "1m 05s", "2h 07m", "3d 04h": the two largest units.
std::string ShortDuration(absl::Duration duration);

}  // namespace ps

#endif  // PS_WORKER_PROGRESS_H_
