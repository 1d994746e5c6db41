#include "server/store/sent_parameters.h"

#include <algorithm>

namespace evenshard {

SentParameters::Ranks SentParameters::NotedBut(uint32_t pusher) const {
  Ranks ranks;
  for (uint32_t rank = 0; rank < copies_.size(); ++rank) {
    if (rank != pusher && is_noted_[rank].load(std::memory_order_relaxed)) ranks.push_back(rank);
  }
  return ranks;
}

void SentParameters::Keep(const Ranks& ranks, absl::Span<const float> parameters,
                          uint64_t version) {
  for (const uint32_t rank : ranks) {
    if (rank >= copies_.size()) continue;
    std::copy(parameters.begin(), parameters.end(), copies_[rank]);
    versions_[rank] = version;
  }
  ForgetNotes();
}

void SentParameters::SetVersions(const std::vector<uint64_t>& versions) {
  versions_ = versions;
  ForgetNotes();
}

void SentParameters::ForgetNotes() {
  for (size_t rank = 0; rank < copies_.size(); ++rank) {
    is_noted_[rank].store(false, std::memory_order_relaxed);
  }
}

}  // namespace evenshard
