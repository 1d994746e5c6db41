#include "server/update/staleness_bound.h"

#include <algorithm>
#include <utility>

namespace evenshard {

bool StalenessBound::IsBehind(uint32_t rank, uint64_t clock, const Clocks& clocks) const {
  const Member& member = members_[rank];
  return member.takes_part && std::max(clocks[rank], member.from) + staleness_ < clock;
}

bool StalenessBound::MayGoOn(uint64_t exchange, const Clocks& clocks) const {
  absl::ReaderMutexLock lock(&mutex_);
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (IsBehind(rank, exchange + 1, clocks)) return false;
  }
  return true;
}

std::vector<uint32_t> StalenessBound::Missing(uint64_t exchange, const Clocks& clocks) const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (IsBehind(rank, exchange + 1, clocks)) missing.push_back(rank);
  }
  return missing;
}

std::optional<uint64_t> StalenessBound::LeastOfOthers(uint32_t rank, const Clocks& clocks) const {
  absl::ReaderMutexLock lock(&mutex_);
  std::optional<uint64_t> least;
  for (uint32_t other = 0; other < members_.size(); ++other) {
    if (other == rank || !members_[other].takes_part) continue;
    const uint64_t clock = std::max(clocks[other], members_[other].from);
    least = std::min(least.value_or(clock), clock);
  }
  return least;
}

bool StalenessBound::ComesBack(uint32_t rank, uint64_t incarnation) const {
  absl::ReaderMutexLock lock(&mutex_);
  // One that was thought lost may have a push under way, which must not count as a repeat.
  return !members_[rank].takes_part && members_[rank].incarnation != incarnation;
}

void StalenessBound::Join(uint32_t rank, uint64_t incarnation, uint64_t from) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_[rank];
  member = {.takes_part = true, .incarnation = incarnation, .from = std::max(member.from, from)};
}

bool StalenessBound::Leave(uint32_t rank, uint64_t incarnation) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_[rank];
  if (!member.takes_part || member.incarnation != incarnation) return false;
  member.takes_part = false;
  return true;
}

bool StalenessBound::Leave(const std::vector<uint32_t>& ranks) {
  absl::MutexLock lock(&mutex_);
  bool any = false;
  for (const uint32_t rank : ranks) any |= std::exchange(members_[rank].takes_part, false);
  return any;
}

}  // namespace evenshard
