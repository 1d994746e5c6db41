#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_WORKER_STATE_WORKER_STATE_ARRIVAL_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_WORKER_STATE_WORKER_STATE_ARRIVAL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/core/worker_state/worker_state.h"

namespace evenshard {

// The most bytes of a piece, and of a state's text.
inline constexpr int64_t kMostStatePieceBytes = int64_t{1} << 20;
inline constexpr int64_t kMostStateTextBytes = int64_t{64} << 20;

// Where each part of a state's memory ends, if they lie one after another.
std::vector<int64_t> EndsOf(const WorkerState::Memory& memory);

// Calls `take(offset in the range, its memory)` for what [begin, begin + size) has of each part.
// REQUIRES: the parts have the range, and `ends` is EndsOf(memory).
template <typename Take>
void ForEachPart(const WorkerState::Memory& memory, const std::vector<int64_t>& ends, int64_t begin,
                 int64_t size, const Take& take) {
  size_t part = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
  for (int64_t done = 0; done < size; ++part) {
    const auto length = static_cast<int64_t>(memory[part].size());
    const int64_t from = begin + done - (ends[part] - length);
    const int64_t count = std::min(size - done, length - from);
    take(done, memory[part].subspan(from, count));
    done += count;
  }
}

// A worker's state as it arrives from another worker by way of all slots, piece by piece in turn:
// what the slots' messages of one transfer say, and where it goes. Nothing of what they say is
// believed, so that nothing is written outside of the memory, and no more of the text is kept than
// it may have. Thread-safe.
class WorkerStateArrival {
 public:
  // `place` must outlive this.
  WorkerStateArrival(int slots, const WorkerState::Place& place) : slots_(slots), place_(place) {}

  // The messages of one slot, in order. Used by one thread.
  class Slot {
   public:
    Slot(WorkerStateArrival* arrival, int slot) : arrival_(*arrival), slot_(slot) {}

    // Waits, if the place is not known yet, until `stop` is requested. Errors: DATA_LOSS for a
    // message that cannot come now, or whose sizes are wrong; those of the place;
    // FAILED_PRECONDITION if the place is smaller or larger than the state; CANCELLED.
    absl::Status Take(const WorkerStatePiece& piece, const std::stop_token& stop);
    // After the last one. Errors: UNAVAILABLE if something is missing.
    absl::Status CheckEnd() const;

   private:
    WorkerStateArrival& arrival_;
    const int slot_;
    bool has_begun_ = false;
    std::string text_;
    int64_t next_ = 0;  // where the next piece belongs
  };

  // The bytes that have come so far, from all slots.
  const std::atomic<int64_t>& moved() const { return moved_; }

 private:
  absl::Status Begin(const WorkerStatePiece& first);
  absl::Status PlaceText(const std::string& text);

  const int slots_;
  const WorkerState::Place& place_;
  std::atomic<int64_t> moved_ = 0;

  absl::Mutex mutex_;
  bool is_placed_ ABSL_GUARDED_BY(mutex_) = false;
  // Constant once they are set: by the first message of any slot, and when the text is placed.
  int64_t total_ = -1, piece_ = 0, text_bytes_ = 0;
  WorkerState::Memory memory_;
  std::vector<int64_t> ends_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_WORKER_STATE_WORKER_STATE_ARRIVAL_H_
