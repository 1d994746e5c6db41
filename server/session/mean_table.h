#ifndef EVENSHARD_SERVER_SESSION_MEAN_TABLE_H_
#define EVENSHARD_SERVER_SESSION_MEAN_TABLE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "server/session/membership.h"

namespace evenshard {

// The means over the workers that they ask for beside the training (ParameterServer.Mean), such as
// of metrics; without values, barriers. All workers of an iteration ask at the same points, and
// each asks again until it has the mean. Thread-safe.
class MeanTable {
 public:
  // `membership` must outlive the table.
  explicit MeanTable(const Membership* membership) : membership_(*membership) {}

  // Takes a worker's value at a point, and returns the mean if the values of all `ranks` are there,
  // added in their order and divided by their number; or which are missing. Once a mean is there it
  // stays, whoever asks, until there are kMostMeans after it. Errors: those of CheckMean;
  // FAILED_PRECONDITION for a point before all that are kept, and if another worker is at another
  // place of its program at this point, has a value of another size, or is missing and one of those
  // that `have_finished`.
  absl::StatusOr<MeanResponse> Ask(const MeanRequest& request, const std::vector<uint32_t>& ranks,
                                   const std::set<uint32_t>& have_finished);

  // The workers that wait in a mean before this iteration for one that gave it no value, and where
  // they do: "worker 0 at train.py:40". Empty if nobody does.
  std::string WaitsFor(uint32_t worker, uint64_t iteration) const;

  // The workers that wait for a mean before this iteration.
  std::set<uint32_t> Waiting(uint64_t iteration) const;

 private:
  // The iteration that comes next for a worker, and how many means it has asked for before at that.
  struct Point {
    uint64_t iteration;
    uint32_t number;
    auto operator<=>(const Point&) const = default;
  };
  using Value = std::vector<double>;
  struct Entry {
    uint32_t first = 0;  // the worker that was first here
    std::string place;   // where in its program that was
    int elements = 0;
    std::map<uint32_t, Value> values;  // by rank
    std::optional<Value> mean;
  };

  // Errors: FAILED_PRECONDITION if one of these workers has finished.
  absl::Status CheckMayCome(absl::Span<const uint32_t> ranks,
                            const std::set<uint32_t>& have_finished) const;

  const Membership& membership_;
  mutable absl::Mutex mutex_;
  std::map<Point, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_MEAN_TABLE_H_
