#include "common/control/view/crew.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// Returns the index of the entry that says the crew of `iteration`.
int EntryAt(const CrewHistory& history, uint64_t iteration) {
  int entry = history.size() - 1;
  while (entry > 0 && history[entry].from_iteration() > iteration) --entry;
  return entry;
}

// Returns the index of an entry that begins at `iteration`, and makes it if there is none.
int EntryFrom(uint64_t iteration, CrewHistory* history) {
  const int before = EntryAt(*history, iteration);
  if ((*history)[before].from_iteration() == iteration) return before;
  Crew added = (*history)[before];
  added.set_from_iteration(iteration);
  *history->Add() = std::move(added);
  for (int i = history->size() - 1; i > before + 1; --i) history->SwapElements(i, i - 1);
  return before + 1;
}

void SetRank(uint32_t rank, bool in_crew, uint64_t iteration, CrewHistory* history) {
  for (int i = EntryFrom(iteration, history); i < history->size(); ++i) {
    std::vector<uint32_t> ranks((*history)[i].rank().begin(), (*history)[i].rank().end());
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    const bool is_there = place != ranks.end() && *place == rank;
    if (in_crew && !is_there) ranks.insert(place, rank);
    if (!in_crew && is_there) ranks.erase(place);
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

absl::Span<const uint32_t> Ranks(const Crew& crew) {
  return absl::MakeConstSpan(crew.rank().data(), crew.rank_size());
}

}  // namespace

absl::Span<const uint32_t> CrewAt(const CrewHistory& history, uint64_t iteration) {
  return Ranks(history[EntryAt(history, iteration)]);
}

absl::Span<const uint32_t> LastCrew(const CrewHistory& history) {
  return Ranks(history[history.size() - 1]);
}

bool IsInLastCrew(const CrewHistory& history, uint32_t rank) {
  return absl::c_binary_search(LastCrew(history), rank);
}

uint64_t InCrewSince(const CrewHistory& history, uint32_t rank) {
  uint64_t since = 0;
  for (auto crew = history.rbegin(); crew != history.rend(); ++crew) {
    if (!absl::c_binary_search(Ranks(*crew), rank)) break;
    since = crew->from_iteration();
  }
  return since;
}

bool IsInCrew(const CrewHistory& history, uint32_t rank, uint64_t iteration) {
  if (history.empty()) return true;
  const absl::Span<const uint32_t> crew = CrewAt(history, iteration);
  return std::binary_search(crew.begin(), crew.end(), rank);
}

bool IsWaitedFor(const CrewHistory& history, uint32_t rank, uint64_t iteration) {
  return IsInCrew(history, rank, iteration) && IsInCrew(history, rank, iteration + 1);
}

void AddToCrew(uint32_t rank, uint64_t iteration, CrewHistory* history) {
  SetRank(rank, /*in_crew=*/true, iteration, history);
}

void RemoveFromCrew(uint32_t rank, uint64_t iteration, CrewHistory* history) {
  SetRank(rank, /*in_crew=*/false, iteration, history);
}

void CutCrews(uint64_t iteration, CrewHistory* history) {
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
