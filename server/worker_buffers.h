#ifndef PS_SERVER_WORKER_BUFFERS_H_
#define PS_SERVER_WORKER_BUFFERS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/float_buffer.h"
#include "common/config/config.h"
#include "common/wire/chunk_codec.h"
#include "proto/parameter_server.pb.h"
#include "server/parameter_store.h"

namespace ps {

// The two buffers of a worker on the shard's host, mapped here: each has the whole model, where
// the model's layout has it. See SharedBuffers in proto/parameter_server.proto. The worker writes
// a chunk's gradient, and reads its parameters, only while no push of that chunk is unanswered.
struct WorkerBuffers {
  FloatBuffer gradients;
  FloatBuffer parameters;

  // Maps what `request` offers. Errors, after which data travels in messages: NOT_FOUND where it
  // offers nothing or its memory cannot be seen from here, as from another container;
  // FAILED_PRECONDITION where the config's exchange does not share memory; those of
  // FloatBuffer::Map.
  static absl::StatusOr<std::shared_ptr<WorkerBuffers>> Map(const Config& config,
                                                            const JoinRequest& request);

  // The worker's gradient of a chunk, in place.
  Segments GradientOf(const Chunk& chunk) const;

  // Writes the chunk's present parameters to the worker's memory; returns their version.
  uint64_t Write(StoredChunk& chunk);
};

}  // namespace ps

#endif  // PS_SERVER_WORKER_BUFFERS_H_
