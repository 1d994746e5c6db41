#ifndef EVENSHARD_COMMON_CONTROL_VIEW_WORKER_SET_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_WORKER_SET_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "google/protobuf/repeated_field.h"
#include "proto/view.pb.h"

namespace evenshard {

// Which ranks count from which iteration on: View.worker_set. It begins at iteration 0 and ascends.
// An empty history is that of a run without views, in which every rank counts everywhere.
using WorkerSetHistory = google::protobuf::RepeatedPtrField<WorkerSet>;

// Returns the ranks, in ascending order, whose gradients count at `iteration`.
// REQUIRES: the history is not empty.
absl::Span<const uint32_t> WorkerSetAt(const WorkerSetHistory& history, uint64_t iteration);

// Returns the ranks whose gradients count from the last entry on.
// REQUIRES: the history is not empty.
absl::Span<const uint32_t> LastWorkerSet(const WorkerSetHistory& history);

// Returns whether the rank's gradients count from the last entry on.
// REQUIRES: the history is not empty.
bool IsInLastWorkerSet(const WorkerSetHistory& history, uint32_t rank);

// Returns the iteration from which on the rank has been in every worker set.
// REQUIRES: it is in the last one.
uint64_t InWorkerSetSince(const WorkerSetHistory& history, uint32_t rank);

// Returns whether the rank's gradient counts at `iteration`.
bool IsInWorkerSet(const WorkerSetHistory& history, uint32_t rank, uint64_t iteration);

// Returns whether the update of `iteration` waits for the rank's gradient: the rank is in the
// worker set of that iteration and of the next one. A lost worker leaves the worker set after the
// first iteration that some chunk is still at. In that iteration the gradients that it has pushed
// count, and no update waits for the rest.
bool IsWaitedFor(const WorkerSetHistory& history, uint32_t rank, uint64_t iteration);

// Changes the worker sets of all iterations from `iteration` on.
void AddToWorkerSet(uint32_t rank, uint64_t iteration, WorkerSetHistory* history);
void RemoveFromWorkerSet(uint32_t rank, uint64_t iteration, WorkerSetHistory* history);

// Forgets every change after `iteration`.
void CutWorkerSets(uint64_t iteration, WorkerSetHistory* history);

// Formats ranks for people: "0-3, 7".
std::string FormatRanks(absl::Span<const uint32_t> ranks);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_WORKER_SET_H_
