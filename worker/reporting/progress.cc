#include "worker/reporting/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace evenshard {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kPlainInterval = absl::Seconds(5);
// A report that is this old counts 1/e of a new one.
constexpr double kMemorySeconds = 10;
constexpr int kDefaultColumns = 80;
constexpr int kMinBar = 5;
constexpr int kMaxBar = 30;

std::string Bar(double fraction, int width) {
  const int filled = std::clamp(static_cast<int>(fraction * width), 0, width);
  std::string bar(width, ' ');
  std::fill(bar.begin(), bar.begin() + filled, '=');
  if (filled < width) bar[filled] = '>';
  return absl::StrCat("[", bar, "]");
}

}  // namespace

ProgressReporter::Options ProgressReporter::ForOutput(std::FILE* output) {
  Options options;
  options.output = output;
  const int descriptor = fileno(output);
  options.terminal = isatty(descriptor) == 1;
  options.columns = [descriptor] {
    winsize size{};
    const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : kDefaultColumns;
  };
  return options;
}

ProgressReporter::ProgressReporter(const Options& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      length_(options.length),
      reported_(clock->Now()),
      shown_(reported_) {}

void ProgressReporter::SetLength(const TrainingLength& length) {
  absl::MutexLock lock(&mutex_);
  length_ = length;
}

void ProgressReporter::Report(const IterationProgress& progress) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  // The system's clock may be set back.
  const double seconds = std::max(absl::ToDoubleSeconds(now - reported_), 0.0);
  const double keep = std::exp(-seconds / kMemorySeconds);
  seconds_ = keep * seconds_ + seconds;
  iterations_ = keep * iterations_ + 1;
  images_ = keep * images_ + static_cast<double>(progress.images);
  compute_seconds_ = keep * compute_seconds_ + progress.compute_seconds;
  exchange_wait_seconds_ = keep * exchange_wait_seconds_ + progress.exchange_wait_seconds;
  latest_ = progress;
  wait_.clear();
  reported_ = now;
  pending_ = true;

  const bool last = progress.iteration >= length_.iterations;
  if (last || now - shown_ >= ShowInterval()) Show(now);
}

void ProgressReporter::ReportWait(int64_t finished, absl::Duration waited, absl::string_view what) {
  absl::MutexLock lock(&mutex_);
  // Under FULL the iteration that waits may have been reported already.
  latest_.iteration = std::max(latest_.iteration, finished);
  wait_ = absl::StrCat("waits ", ShortDuration(waited), ": ", what);
  if (const absl::Time now = clock_->Now(); now - shown_ >= ShowInterval()) Show(now);
}

absl::Duration ProgressReporter::ShowInterval() const {
  return options_.terminal ? kRedrawInterval : kPlainInterval;
}

void ProgressReporter::Flush() {
  absl::MutexLock lock(&mutex_);
  if (pending_) Show(clock_->Now());
  if (line_open_) {
    std::fputc('\n', options_.output);
    std::fflush(options_.output);
    line_open_ = false;
  }
}

void ProgressReporter::Show(absl::Time now) {
  const std::string text =
      options_.terminal ? absl::StrCat("\r", TerminalLine()) : absl::StrCat(PlainLine(), "\n");
  std::fwrite(text.data(), 1, text.size(), options_.output);
  std::fflush(options_.output);
  shown_ = now;
  pending_ = false;
  line_open_ = options_.terminal;
}

ProgressReporter::Figures ProgressReporter::Summary() const {
  const int64_t latest = std::max<int64_t>(latest_.iteration - 1, 0);
  Figures figures{.epoch = absl::StrCat(length_.epoch(latest) + 1, "/",
                                        length_.epoch(length_.iterations - 1) + 1),
                  .iteration = absl::StrCat(latest_.iteration, "/", length_.iterations)};
  if (seconds_ <= 0) return figures;  // no time has passed: nothing to divide by
  const double rate = images_ / seconds_;
  const double left = static_cast<double>(length_.iterations - latest_.iteration);
  figures.images_per_second = absl::StrFormat("%.*f", rate < 100 ? 1 : 0, rate);
  figures.compute_percent = absl::StrFormat("%.0f", 100 * compute_seconds_ / seconds_);
  figures.wait_percent = absl::StrFormat("%.0f", 100 * exchange_wait_seconds_ / seconds_);
  figures.time_left = ShortDuration(absl::Seconds(std::max(left, 0.0) * seconds_ / iterations_));
  return figures;
}

std::string ProgressReporter::PlainLine() const {
  const Figures figures = Summary();
  if (!wait_.empty()) {
    return absl::StrFormat("epoch %s  iteration %s  %s", figures.epoch, figures.iteration, wait_);
  }
  return absl::StrFormat(
      "epoch %s  iteration %s  loss %.4g  %s images/s  compute %s %%  exchange wait %s %%  ETA %s",
      figures.epoch, figures.iteration, latest_.loss, figures.images_per_second,
      figures.compute_percent, figures.wait_percent, figures.time_left);
}

// The line fills the terminal except for the last column, where it would wrap. Spaces cover the end
// of a longer line before it. The bar takes the columns that the numbers leave, and the numbers are
// short enough for a bar in 80 columns.
std::string ProgressReporter::TerminalLine() const {
  const Figures figures = Summary();
  std::string line = absl::StrFormat("epoch %s %s ", figures.epoch, figures.iteration);
  const std::string rest =
      !wait_.empty()
          ? wait_
          : absl::StrFormat("loss %.3g %s img/s compute %s%% wait %s%% ETA %s", latest_.loss,
                            figures.images_per_second, figures.compute_percent,
                            figures.wait_percent, figures.time_left);
  const int width = std::max(options_.columns() - 1, 1);
  const int room = width - static_cast<int>(line.size() + rest.size()) - 3;  // "[", "]", " "
  if (room >= kMinBar) {
    const double fraction =
        static_cast<double>(latest_.iteration) / static_cast<double>(length_.iterations);
    absl::StrAppend(&line, Bar(fraction, std::min(room, kMaxBar)), " ");
  }
  absl::StrAppend(&line, rest);
  line.resize(width, ' ');
  return line;
}

std::string ShortDuration(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Milliseconds(500));
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return absl::StrFormat("%ds", seconds);
  if (hours == 0) return absl::StrFormat("%dm %02ds", minutes, seconds % 60);
  if (hours < 24) return absl::StrFormat("%dh %02dm", hours, minutes % 60);
  return absl::StrFormat("%dd %02dh", hours / 24, hours % 24);
}

}  // namespace evenshard
