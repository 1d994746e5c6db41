#ifndef EVENSHARD_SERVER_STORE_CHUNK_OBSERVER_H_
#define EVENSHARD_SERVER_STORE_CHUNK_OBSERVER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "common/wire/chunk_codec.h"
#include "proto/encoding.pb.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// A change of a chunk: an update, or an iteration or push without any contribution.
struct ChunkChange {
  using Workers = absl::InlinedVector<uint32_t, 1>;

  UpdateRate rate = {};  // with the iteration of the gradients
  // What the optimizer was applied to: `scale` times `gradient` in `encoding`. Empty if there was
  // no update. Stays as it is while `owner` lives or, without an owner, until the chunk's replies
  // have been released.
  Segments gradient = {};
  Encoding encoding = FLOAT32;
  float scale = 1;
  std::shared_ptr<const void> owner = nullptr;
  Workers workers = {};  // whose pushes were counted, those with `skip` included
};

// An object that has to know of each change of a slot's chunks. The methods are called under the
// chunk's lock. Implementations are thread-safe and must not block.
class ChunkObserver {
 public:
  virtual ~ChunkObserver() = default;

  // Whether Changed reads what of a change lies in `gradient` and the fields after it. Otherwise
  // they may be empty, which saves a pass over the sum. The answer is always the same.
  virtual bool ReadsGradients() const { return false; }

  // The chunk is about to change. Returns false if it must not change now. Then
  // UpdatePolicy::Resume must be called for the chunk, and this is asked again. Only SYNC asks:
  // under ASYNC, where no update waits, a chunk may change at any time.
  virtual bool BeforeChange(int index, const StoredChunk& chunk)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) {
    return true;
  }

  // The chunk has changed, and its clock has moved on. Returns the number of the change if replies
  // must wait until UpdatePolicy::Confirm has been called with that number or a larger one. The
  // numbers of a chunk ascend.
  virtual std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                          const ChunkChange& change)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) = 0;

  // In place of Changed: the change has failed, and the chunk may be neither what it was nor what
  // it was to be.
  virtual void ChangeFailed(const absl::Status& failure) {}
};

// The observers of a slot, in the order in which they are asked and told. Observers that may hold a
// change up come first, then those that act just before it. If one holds it up, the observers
// behind it are not asked. At most one of them numbers the changes. Thread-safe.
class ChunkObservers {
 public:
  explicit ChunkObservers(std::vector<ChunkObserver*> in_order)
      : in_order_(std::move(in_order)),
        read_gradients_(std::any_of(in_order_.begin(), in_order_.end(),
                                    [](ChunkObserver* each) { return each->ReadsGradients(); })) {}

  // See ChunkObserver: what holds for at least one of them.
  bool ReadGradients() const { return read_gradients_; }

  bool BeforeChange(int index, const StoredChunk& chunk) const
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) {
    for (ChunkObserver* each : in_order_) {
      if (!each->BeforeChange(index, chunk)) return false;
    }
    return true;
  }

  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) const
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) {
    std::optional<uint64_t> number;
    for (ChunkObserver* each : in_order_) {
      const std::optional<uint64_t> numbered = each->Changed(index, chunk, change);
      if (numbered.has_value()) number = numbered;
    }
    return number;
  }

  void ChangeFailed(const absl::Status& failure) const {
    for (ChunkObserver* each : in_order_) each->ChangeFailed(failure);
  }

 private:
  const std::vector<ChunkObserver*> in_order_;
  const bool read_gradients_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_CHUNK_OBSERVER_H_
