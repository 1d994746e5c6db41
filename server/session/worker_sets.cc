#include "server/session/worker_sets.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace evenshard {

WorkerSets::WorkerSets(int workers) {
  std::vector<uint32_t> all(workers);
  std::iota(all.begin(), all.end(), 0);
  Add(0, std::move(all));
}

WorkerSets::WorkerSets(const View& view, int workers) {
  for (const WorkerSet& worker_set : view.worker_set()) {
    Add(worker_set.from_iteration(), {worker_set.rank().begin(), worker_set.rank().end()});
  }
  if (entries_.empty()) *this = WorkerSets(workers);
}

void WorkerSets::Add(uint64_t from_iteration, std::vector<uint32_t> ranks) {
  Entry entry{.from_iteration = from_iteration, .ranks = std::move(ranks), .contains = {}};
  std::sort(entry.ranks.begin(), entry.ranks.end());
  if (!entry.ranks.empty()) entry.contains.resize(entry.ranks.back() + 1);
  for (const uint32_t rank : entry.ranks) entry.contains[rank] = true;
  entries_.push_back(std::move(entry));
}

const WorkerSets::Entry& WorkerSets::EntryAt(uint64_t iteration) const {
  // The present entry is nearly always the last.
  size_t i = entries_.size() - 1;
  while (i > 0 && entries_[i].from_iteration > iteration) --i;
  return entries_[i];
}

int WorkerSets::Waited(uint64_t iteration) const {
  const Entry& now = EntryAt(iteration);
  const Entry& next = EntryAt(iteration + 1);
  if (&now == &next) return static_cast<int>(now.ranks.size());
  return static_cast<int>(std::count_if(now.ranks.begin(), now.ranks.end(),
                                        [&](uint32_t rank) { return next.Contains(rank); }));
}

std::vector<uint32_t> WorkerSets::WaitedRanks(uint64_t iteration) const {
  std::vector<uint32_t> ranks = EntryAt(iteration).ranks;
  std::erase_if(ranks, [&](uint32_t rank) { return !WaitsFor(rank, iteration); });
  return ranks;
}

}  // namespace evenshard
