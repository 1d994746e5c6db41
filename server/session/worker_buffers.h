#ifndef EVENSHARD_SERVER_SESSION_WORKER_BUFFERS_H_
#define EVENSHARD_SERVER_SESSION_WORKER_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/base/float_buffer.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "proto/parameter_server.pb.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// The two buffers that a worker on the shard's host shares, as the shard has mapped them. Each
// holds the whole model, as Model says (see SharedBuffers in proto/parameter_server.proto).
// The worker writes the gradient of a chunk and reads its parameters only while it has no
// unanswered push of that chunk.
struct WorkerBuffers {
  FloatBuffer gradients;
  FloatBuffer parameters;

  // Maps the buffers that `request` offers. After an error, data travels in messages.
  // Errors: NOT_FOUND if the request offers no buffers; FAILED_PRECONDITION if the config does not
  // allow shared memory; those of FloatBuffer::Map, such as NOT_FOUND for a worker in another
  // container.
  static absl::StatusOr<std::shared_ptr<WorkerBuffers>> Map(const PlannedConfig& config,
                                                            const JoinRequest& request);

  // Returns a view of a chunk in the worker's memory of gradients: its gradient, or what is
  // assigned to it.
  Segments GradientOf(const PlannedConfig& config, bool assigned, const Chunk& chunk) const;

  // Copies the current parameters of a chunk to the worker's memory, unless it has this version,
  // and returns their version. Notes that the worker has them (SentParameters). Acquires the
  // chunk's lock.
  uint64_t Write(const PlannedConfig& config, uint32_t rank, StoredChunk& chunk,
                 std::optional<uint64_t> held_version);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_WORKER_BUFFERS_H_
