#include "server/shard/update_waits.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// Statistics show no shorter wait: every update waits a moment for its slowest worker.
constexpr absl::Duration kShortestWait = absl::Seconds(1);

}  // namespace

const UpdatePolicy::Pending* Oldest(const PendingUpdates& updates) {
  const auto oldest =
      absl::c_min_element(updates, [](const auto& a, const auto& b) { return a.since < b.since; });
  return oldest == updates.end() ? nullptr : &*oldest;
}

absl::Status CheckNoneHasFinished(const PendingUpdates& updates, const std::vector<uint32_t>& left,
                                  const Membership& membership) {
  for (const UpdatePolicy::Pending& update : updates) {
    for (const uint32_t rank : update.missing) {
      if (!absl::c_binary_search(left, rank)) continue;
      return absl::AbortedError(absl::StrCat(
          membership.Describe(rank), " has finished, and others go on to iteration ",
          update.iteration,
          ", which needs it; under SYNC all workers train equally long, but for PyTorch"
          " scripts in `with optimizer.join():` of Optimizer or DistributedOptimizer"));
    }
  }
  return absl::OkStatus();
}

void FillWait(const PendingUpdates& updates, absl::Time now, ShardStats* stats) {
  const UpdatePolicy::Pending* const oldest = Oldest(updates);
  if (oldest == nullptr || now - oldest->since < kShortestWait) return;
  stats->mutable_wait()->set_iteration(oldest->iteration);
  stats->mutable_wait()->set_seconds(absl::ToDoubleSeconds(now - oldest->since));
  stats->mutable_wait()->mutable_worker()->Add(oldest->missing.begin(), oldest->missing.end());
}

}  // namespace evenshard
