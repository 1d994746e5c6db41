#ifndef EVENSHARD_COMMON_CONTROL_VIEW_CREW_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_CREW_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "google/protobuf/repeated_field.h"
#include "proto/view.pb.h"

namespace evenshard {

// Which ranks count from which iteration on: View.crew. It begins at iteration 0 and ascends. An
// empty history is that of a run without views, in which every rank counts everywhere.
using CrewHistory = google::protobuf::RepeatedPtrField<Crew>;

// Returns the ranks, in ascending order, whose gradients count at `iteration`.
// REQUIRES: the history is not empty.
absl::Span<const uint32_t> CrewAt(const CrewHistory& history, uint64_t iteration);

// Returns the ranks whose gradients count from the last entry on.
// REQUIRES: the history is not empty.
absl::Span<const uint32_t> LastCrew(const CrewHistory& history);

// Returns whether the rank's gradients count from the last entry on.
// REQUIRES: the history is not empty.
bool IsInLastCrew(const CrewHistory& history, uint32_t rank);

// Returns the iteration from which on the rank has been in every crew.
// REQUIRES: it is in the last one.
uint64_t InCrewSince(const CrewHistory& history, uint32_t rank);

// Returns whether the rank's gradient counts at `iteration`.
bool IsInCrew(const CrewHistory& history, uint32_t rank, uint64_t iteration);

// Returns whether the update of `iteration` waits for the rank's gradient: the rank is in the crew
// of that iteration and of the next one. A worker that is lost leaves the crew from the iteration
// after the first that some chunk is still at; at that one its gradients count where they came, and
// nobody waits for the others.
bool IsWaitedFor(const CrewHistory& history, uint32_t rank, uint64_t iteration);

// Changes the crews of all iterations from `iteration` on.
void AddToCrew(uint32_t rank, uint64_t iteration, CrewHistory* history);
void RemoveFromCrew(uint32_t rank, uint64_t iteration, CrewHistory* history);

// Forgets every change after `iteration`: what remains says the crews up to it.
void CutCrews(uint64_t iteration, CrewHistory* history);

// Formats ranks for people: "0-3, 7".
std::string FormatRanks(absl::Span<const uint32_t> ranks);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_CREW_H_
