#include "worker/data/order/dealing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

absl::Status CheckWorkerSet(const Dealing::Options& options, const WorkerSet& worker_set) {
  const auto invalid = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat("the worker set from iteration ",
                                                   worker_set.from_iteration(), " on ", text...));
  };
  if (worker_set.rank().empty()) return invalid("has no ranks");
  const auto unordered = std::adjacent_find(worker_set.rank().begin(), worker_set.rank().end(),
                                            std::greater_equal<>());
  if (unordered != worker_set.rank().end()) {
    return invalid("has rank ", *std::next(unordered), " after rank ", *unordered);
  }
  const int64_t needed = worker_set.rank_size() * options.batch_size;
  if (needed <= options.images) return absl::OkStatus();
  return invalid("needs ", needed, " images for an iteration, the data has ", options.images);
}

}  // namespace

absl::StatusOr<Dealing> Dealing::Create(const Options& options) {
  if (options.worker_sets.empty() || options.worker_sets[0].from_iteration() != 0) {
    return absl::InvalidArgumentError("there is no worker set from iteration 0 on");
  }
  Dealing dealing(options.images, options.batch_size);
  for (size_t i = 0; i < options.worker_sets.size(); ++i) {
    const WorkerSet& worker_set = options.worker_sets[i];
    RETURN_IF_ERROR(CheckWorkerSet(options, worker_set));
    if (i > 0 && worker_set.from_iteration() < options.worker_sets[i - 1].from_iteration()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the worker set from iteration ", worker_set.from_iteration(),
                       " on comes after the one from iteration ",
                       options.worker_sets[i - 1].from_iteration(), " on"));
    }
    dealing.Append(worker_set);
  }
  return dealing;
}

void Dealing::Append(const WorkerSet& worker_set) {
  Segment next = {.from = static_cast<int64_t>(worker_set.from_iteration()),
                  .ranks = {worker_set.rank().begin(), worker_set.rank().end()},
                  .global_batch = worker_set.rank_size() * batch_size_};
  // A worker set that was replaced before its first iteration has left no trace.
  if (!segments_.empty() && segments_.back().from == next.from) segments_.pop_back();
  if (!segments_.empty()) {
    const Segment& before = segments_.back();
    const Place last = PlaceAt(before, next.from - 1);
    next.epoch = last.epoch;
    next.position = last.position + before.global_batch;
  }
  segments_.push_back(std::move(next));
}

const Dealing::Segment& Dealing::SegmentAt(int64_t iteration) const {
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), iteration,
      [](int64_t wanted, const Segment& segment) { return wanted < segment.from; });
  return *std::prev(after);
}

Dealing::Place Dealing::PlaceAt(const Segment& segment, int64_t iteration) const {
  const int64_t rest = (images_ - segment.position) / segment.global_batch;  // of the first epoch
  const int64_t whole = images_ / segment.global_batch;                      // of each other one
  const int64_t since = iteration - segment.from;
  if (since < rest) return {segment.epoch, segment.position + since * segment.global_batch};
  return {segment.epoch + 1 + (since - rest) / whole,
          (since - rest) % whole * segment.global_batch};
}

std::optional<Dealing::Share> Dealing::ShareOf(int rank, int64_t iteration) const {
  const Segment& segment = SegmentAt(iteration);
  const auto found = std::find(segment.ranks.begin(), segment.ranks.end(), rank);
  if (found == segment.ranks.end()) return std::nullopt;
  const Place place = PlaceAt(segment, iteration);
  return Share{.epoch = place.epoch,
               .first = place.position + (found - segment.ranks.begin()),
               .stride = static_cast<int64_t>(segment.ranks.size())};
}

int64_t Dealing::EpochAt(int64_t iteration) const {
  return PlaceAt(SegmentAt(iteration), iteration).epoch;
}

int Dealing::LowestRank(int64_t iteration) const {
  return static_cast<int>(SegmentAt(iteration).ranks.front());
}

int64_t Dealing::IterationsOf(int64_t epochs) const {
  for (size_t i = 0;; ++i) {
    const Segment& segment = segments_[i];
    const int64_t rest = (images_ - segment.position) / segment.global_batch;
    const int64_t whole = images_ / segment.global_batch;
    const int64_t end = segment.from + rest + (epochs - segment.epoch - 1) * whole;
    // If it is where the next segment begins, a smaller worker set may find images left in the
    // epoch.
    if (i + 1 == segments_.size() || end < segments_[i + 1].from) return end;
  }
}

int64_t Dealing::FirstDifference(const Dealing& other) const {
  const auto [here, there] = std::mismatch(segments_.begin(), segments_.end(),
                                           other.segments_.begin(), other.segments_.end());
  int64_t first = std::numeric_limits<int64_t>::max();
  if (here != segments_.end()) first = here->from;
  if (there != other.segments_.end()) first = std::min(first, there->from);
  return first;
}

}  // namespace evenshard
