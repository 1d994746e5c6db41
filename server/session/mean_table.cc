#include "server/session/mean_table.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/wire/mean_limits.h"

namespace evenshard {
namespace {

std::string Elements(int count) { return count == 0 ? "no value" : absl::StrCat(count, " values"); }

}  // namespace

absl::Status MeanTable::CheckMayCome(absl::Span<const uint32_t> ranks,
                                     const std::set<uint32_t>& have_finished) const {
  for (const uint32_t rank : ranks) {
    if (!have_finished.contains(rank)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(membership_.Describe(rank),
                     " has finished, and takes no part in a mean any more; allowed: "
                     "the same calls of mean() and barrier() in all workers"));
  }
  return absl::OkStatus();
}

std::string MeanTable::WaitsFor(uint32_t worker, uint64_t iteration) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [point, entry] : entries_) {
    const bool waits = point.iteration == iteration && !entry.values.empty();
    if (!waits || entry.values.contains(worker)) continue;
    return absl::StrCat("worker ", entry.values.begin()->first, " at ", Printable(entry.place));
  }
  return "";
}

std::set<uint32_t> MeanTable::Waiting(uint64_t iteration) const {
  absl::MutexLock lock(&mutex_);
  std::set<uint32_t> waiting;
  for (const auto& [point, entry] : entries_) {
    if (point.iteration != iteration) continue;
    // None are left of a mean that is complete.
    for (const auto& [rank, value] : entry.values) waiting.insert(rank);
  }
  return waiting;
}

absl::StatusOr<MeanResponse> MeanTable::Ask(const MeanRequest& request,
                                            const std::vector<uint32_t>& ranks,
                                            const std::set<uint32_t>& have_finished) {
  RETURN_IF_ERROR(CheckMean(request.value_size(), request.place().size()));
  const Point point = {.iteration = request.iteration(), .number = request.number()};
  absl::MutexLock lock(&mutex_);
  if (entries_.size() == kMostMeans && point < entries_.begin()->first) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " asks for mean ", request.number(),
                     " before iteration ", request.iteration(), ", which is older than the ",
                     kMostMeans, " that are kept; allowed: the next one"));
  }
  const auto [found, is_new] = entries_.try_emplace(point);
  Entry& entry = found->second;
  if (is_new) {
    entry.first = request.worker();
    entry.place = request.place();
    entry.elements = request.value_size();
    if (entries_.size() > kMostMeans) entries_.erase(entries_.begin());
  }
  if (entry.place != request.place() || entry.elements != request.value_size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", request.worker(), " asks for a mean of ", Elements(request.value_size()), " at ",
        Printable(request.place()), ", and worker ", entry.first, " of ", Elements(entry.elements),
        " at ", Printable(entry.place),
        "; allowed: the same calls of mean() and barrier() in the same order in all workers, and "
        "in "
        "one that was started again those of the iteration at which the run is"));
  }
  const Value value(request.value().begin(), request.value().end());
  if (request.is_mean()) {
    entry.mean = value;
  } else if (!entry.mean.has_value()) {
    entry.values[request.worker()] = value;
  }
  MeanResponse response;
  if (!entry.mean.has_value()) {
    for (const uint32_t rank : ranks) {
      if (!entry.values.contains(rank)) response.add_missing(rank);
    }
    if (response.missing_size() > 0) {
      RETURN_IF_ERROR(CheckMayCome(response.missing(), have_finished));
      return response;
    }
    entry.mean.emplace(entry.elements, 0);
    for (const uint32_t rank : ranks) {
      for (int i = 0; i < entry.elements; ++i) (*entry.mean)[i] += entry.values[rank][i];
    }
    for (double& element : *entry.mean) element /= static_cast<double>(ranks.size());
  }
  entry.values.clear();
  response.set_complete(true);
  response.mutable_value()->Add(entry.mean->begin(), entry.mean->end());
  return response;
}

}  // namespace evenshard
