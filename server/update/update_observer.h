#ifndef EVENSHARD_SERVER_UPDATE_UPDATE_OBSERVER_H_
#define EVENSHARD_SERVER_UPDATE_UPDATE_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/wire/chunk_codec.h"
#include "proto/encoding.pb.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// What has changed a chunk: an update, or an iteration or push to which nobody contributed.
struct ChunkChange {
  // What the optimizer was applied to: `scale` times `gradient` in `encoding`. Empty if there was
  // no update. Stays as it is while `owner` lives or, without an owner, until the chunk's replies
  // have been released.
  Segments gradient = {};
  Encoding encoding = FLOAT32;
  float scale = 1;
  std::shared_ptr<const void> owner = nullptr;
  UpdateRate rate = {};                // with the iteration of the gradients
  std::vector<uint32_t> workers = {};  // whose pushes were counted, those with `skip` included
};

// Decides when a chunk may change, hears of each change, and may keep its replies back. The methods
// are called under the chunk's lock. Implementations are thread-safe and must not block.
class UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;

  // Whether the chunk may change now. After it was false, UpdatePolicy::Resume must be called for
  // the chunk.
  virtual bool MayChange(int index, const StoredChunk& chunk)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) = 0;

  // The chunk has changed, and its clock has moved on. Returns the number of the change if replies
  // must wait until UpdatePolicy::Confirm has been called with that number or a larger one. The
  // numbers of a chunk ascend.
  virtual std::optional<uint64_t> Changed(int index, const StoredChunk& chunk, ChunkChange change)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_UPDATE_OBSERVER_H_
