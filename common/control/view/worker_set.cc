#include "common/control/view/worker_set.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// Returns the index of the entry that says the worker set of `iteration`.
int EntryAt(const WorkerSetHistory& history, uint64_t iteration) {
  int entry = history.size() - 1;
  while (entry > 0 && history[entry].from_iteration() > iteration) --entry;
  return entry;
}

// Returns the index of an entry that begins at `iteration`, and makes it if there is none.
int EntryFrom(uint64_t iteration, WorkerSetHistory* history) {
  const int before = EntryAt(*history, iteration);
  if ((*history)[before].from_iteration() == iteration) return before;
  WorkerSet added = (*history)[before];
  added.set_from_iteration(iteration);
  *history->Add() = std::move(added);
  for (int i = history->size() - 1; i > before + 1; --i) history->SwapElements(i, i - 1);
  return before + 1;
}

void SetRank(uint32_t rank, bool in_worker_set, uint64_t iteration, WorkerSetHistory* history) {
  for (int i = EntryFrom(iteration, history); i < history->size(); ++i) {
    std::vector<uint32_t> ranks((*history)[i].rank().begin(), (*history)[i].rank().end());
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    const bool is_there = place != ranks.end() && *place == rank;
    if (in_worker_set && !is_there) ranks.insert(place, rank);
    if (!in_worker_set && is_there) ranks.erase(place);
    (*history)[i].mutable_rank()->Assign(ranks.begin(), ranks.end());
  }
  // An entry that changes nothing says nothing.
  for (int i = history->size() - 1; i > 0; --i) {
    const auto& ranks = (*history)[i].rank();
    const auto& before = (*history)[i - 1].rank();
    if (std::equal(ranks.begin(), ranks.end(), before.begin(), before.end())) {
      history->DeleteSubrange(i, 1);
    }
  }
}

absl::Span<const uint32_t> Ranks(const WorkerSet& worker_set) {
  return absl::MakeConstSpan(worker_set.rank().data(), worker_set.rank_size());
}

}  // namespace

absl::Span<const uint32_t> WorkerSetAt(const WorkerSetHistory& history, uint64_t iteration) {
  return Ranks(history[EntryAt(history, iteration)]);
}

absl::Span<const uint32_t> LastWorkerSet(const WorkerSetHistory& history) {
  return Ranks(history[history.size() - 1]);
}

bool IsInLastWorkerSet(const WorkerSetHistory& history, uint32_t rank) {
  return absl::c_binary_search(LastWorkerSet(history), rank);
}

uint64_t InWorkerSetSince(const WorkerSetHistory& history, uint32_t rank) {
  uint64_t since = 0;
  for (auto worker_set = history.rbegin(); worker_set != history.rend(); ++worker_set) {
    if (!absl::c_binary_search(Ranks(*worker_set), rank)) break;
    since = worker_set->from_iteration();
  }
  return since;
}

bool IsInWorkerSet(const WorkerSetHistory& history, uint32_t rank, uint64_t iteration) {
  if (history.empty()) return true;
  const absl::Span<const uint32_t> worker_set = WorkerSetAt(history, iteration);
  return std::binary_search(worker_set.begin(), worker_set.end(), rank);
}

bool IsWaitedFor(const WorkerSetHistory& history, uint32_t rank, uint64_t iteration) {
  return IsInWorkerSet(history, rank, iteration) && IsInWorkerSet(history, rank, iteration + 1);
}

void AddToWorkerSet(uint32_t rank, uint64_t iteration, WorkerSetHistory* history) {
  SetRank(rank, /*in_worker_set=*/true, iteration, history);
}

void RemoveFromWorkerSet(uint32_t rank, uint64_t iteration, WorkerSetHistory* history) {
  SetRank(rank, /*in_worker_set=*/false, iteration, history);
}

void CutWorkerSets(uint64_t iteration, WorkerSetHistory* history) {
  while (history->size() > 1 && (*history)[history->size() - 1].from_iteration() > iteration) {
    history->RemoveLast();
  }
}

std::string FormatRanks(absl::Span<const uint32_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ", ", ranks[i]);
    if (last > i) absl::StrAppend(&text, last == i + 1 ? ", " : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace evenshard
