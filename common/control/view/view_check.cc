#include "common/control/view/view_check.h"

#include <cstdint>
#include <functional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// Whether the worker sets begin at iteration 0 and ascend, with ascending ranks, in the last one
// below `workers`. Those before may be of a ring that had more workers, from whose checkpoint this
// run goes on.
bool AreWorkerSets(const View& view, int workers) {
  const auto& worker_sets = view.worker_set();
  const auto is_not_earlier = [](const WorkerSet& a, const WorkerSet& b) {
    return a.from_iteration() >= b.from_iteration();
  };
  return (worker_sets.empty() || worker_sets[0].from_iteration() == 0) &&
         absl::c_adjacent_find(worker_sets, is_not_earlier) == worker_sets.end() &&
         absl::c_all_of(worker_sets, [&](const WorkerSet& worker_set) {
           const auto& ranks = worker_set.rank();
           return absl::c_adjacent_find(ranks, std::greater_equal<>()) == ranks.end() &&
                  (ranks.empty() || ranks[ranks.size() - 1] < static_cast<uint32_t>(workers) ||
                   &worker_set != &worker_sets[worker_sets.size() - 1]);
         });
}

}  // namespace

absl::Status CheckView(const View& view, int slots, int workers) {
  if (view.slot_size() != slots || view.worker_size() != workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "view ", view.number(), " has ", view.slot_size(), " slots and ", view.worker_size(),
        " workers, allowed: ", slots, " and ", workers, ", as in the config"));
  }
  if (!AreWorkerSets(view, workers) || (slots == 0 && view.worker_set().empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the worker sets of view ", view.number(),
        " make no sense, allowed: from iteration 0 on, ascending, with ascending ranks "
        "below ",
        workers));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
