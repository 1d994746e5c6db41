#ifndef EVENSHARD_TESTS_COMMON_CONTROL_CONFORMANCE_VIEW_BENCH_H_
#define EVENSHARD_TESTS_COMMON_CONTROL_CONFORMANCE_VIEW_BENCH_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/control/view/view_coordinator.h"
#include "common/control/view/view_link.h"

namespace evenshard {

// A place of a run.
struct BenchRole {
  bool is_worker = false;
  uint32_t index = 0;

  friend auto operator<=>(const BenchRole&, const BenchRole&) = default;
};

// An coordinator under test, the ways to it from the processes of its run, and the means to disturb
// both. Each implementation is linked with the same test cases. Used by the test's main thread.
class ViewBench {
 public:
  virtual ~ViewBench() = default;

  // Starts what a process needs beside its link, and makes the link.
  virtual std::unique_ptr<ViewLink> Connect(BenchRole role) = 0;

  // Stops everything that the process sends or receives, as if it were stopped by a signal.
  virtual void Cut(BenchRole role) = 0;
  // Ends Cut.
  virtual void Mend(BenchRole role) = 0;
  // Whether the process runs, as far as the bench has not killed it.
  virtual bool Lives(BenchRole role) const = 0;
  // Why the run has failed, if the processes do not hear it but are ended.
  virtual absl::Status Failure() const = 0;
  // The process is dead. Its link exists no more.
  virtual void Died(BenchRole role) = 0;

  // Makes all messages late.
  virtual void SlowDown(absl::Duration delay) = 0;

  // Stops the coordinator at once and begins it again, if that can be.
  virtual bool CanGoAway() const = 0;
  virtual void TakeAway() = 0;
  virtual void BringBack() = 0;

  // The process that makes the views, if a process of the run does so.
  virtual std::optional<BenchRole> Coordinator() const = 0;
};

// Returns the bench that is linked with the test cases, or null after saying why there is none.
std::unique_ptr<ViewBench> MakeViewBench(const ViewCoordinator::Settings& settings);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONTROL_CONFORMANCE_VIEW_BENCH_H_
