#include "worker/ring/core/ring_notes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

constexpr absl::Duration kCheckPeriod = absl::Milliseconds(50);
constexpr size_t kMostPoints = 2;

std::string Described(const RingNote& note) {
  if (note.place().empty()) return "begins an iteration";
  const int count = note.value_size();
  return absl::StrCat("asks for a mean of ",
                      count == 0 ? "no value" : absl::StrCat(count, " values"), " at ",
                      Printable(note.place()));
}

// Errors: FAILED_PRECONDITION if workers are at different places.
absl::Status CheckSamePlace(const std::vector<RingNote>& notes) {
  for (const RingNote& note : notes) {
    if (note.place() == notes[0].place() && note.value_size() == notes[0].value_size()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", note.origin(), " ", Described(note), ", and worker 0 ", Described(notes[0]),
        "; allowed: the same calls of mean() and barrier() in the same order in all "
        "workers"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RingNotes::Take(const RingNote& note) {
  const bool is_of_ring = std::find(ranks_.begin(), ranks_.end(), note.origin()) != ranks_.end();
  absl::MutexLock lock(&mutex_);
  const Point point(note.iteration(), note.number());
  auto& of_point = notes_[point];
  const bool is_new = of_point.emplace(note.origin(), note).second;
  if (is_new && is_of_ring && notes_.size() <= kMostPoints) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a note of worker ", note.origin(), ", number ",
                                                 note.number(), " of iteration ", note.iteration(),
                                                 ", cannot come now"));
}

absl::StatusOr<std::vector<RingNote>> RingNotes::Await(uint64_t iteration, uint32_t number,
                                                       const std::function<absl::Status()>& check) {
  const Point point(iteration, number);
  absl::MutexLock lock(&mutex_);
  const auto are_there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const auto found = notes_.find(point);
    return found != notes_.end() && found->second.size() == ranks_.size();
  };
  awaits_ = true;
  absl::Status checked;
  while (checked.ok() && !mutex_.AwaitWithTimeout(absl::Condition(&are_there), kCheckPeriod)) {
    mutex_.Unlock();
    checked = check();
    mutex_.Lock();
  }
  awaits_ = false;
  RETURN_IF_ERROR(checked);
  std::vector<RingNote> notes;
  for (auto& [rank, note] : notes_[point]) notes.push_back(std::move(note));
  notes_.erase(point);
  return notes;
}

std::vector<int> RingNotes::Missing(uint64_t iteration, uint32_t number) const {
  absl::MutexLock lock(&mutex_);
  const auto found = notes_.find(Point(iteration, number));
  std::vector<int> missing;
  for (const int rank : ranks_) {
    if (found == notes_.end() || !found->second.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

int RingNotes::GivenFor(uint64_t iteration) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [point, of_point] : notes_) {
    if (point.first == iteration && !of_point.empty()) {
      return static_cast<int>(of_point.begin()->first);
    }
  }
  return -1;
}

absl::StatusOr<std::vector<double>> MeanOf(const std::vector<RingNote>& notes) {
  RETURN_IF_ERROR(CheckSamePlace(notes));
  std::vector<double> mean(notes[0].value_size());
  for (const RingNote& note : notes) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += note.value(static_cast<int>(i));
  }
  for (double& element : mean) element /= static_cast<double>(notes.size());
  return mean;
}

absl::Status CheckSameStates(const std::vector<RingNote>& notes) {
  RETURN_IF_ERROR(CheckSamePlace(notes));
  const RingNote& first = notes[0];
  for (const RingNote& note : notes) {
    for (int i = 0; i < std::max(note.state_size(), first.state_size()); ++i) {
      const bool has_both = i < note.state_size() && i < first.state_size();
      if (has_both && note.state(i).name() == first.state(i).name() &&
          note.state(i).fingerprint() == first.state(i).fingerprint()) {
        continue;
      }
      const RingNote& named = i < first.state_size() ? first : note;
      const std::string& name = named.state(i).name();
      return WithDifferingState(name, absl::FailedPreconditionError(absl::StrCat(
                                          "\"", Printable(name), "\" is not the same in worker ",
                                          note.origin(), " and in worker 0")));
    }
  }
  return absl::OkStatus();
}

}  // namespace evenshard
