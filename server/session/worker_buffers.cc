#include "server/session/worker_buffers.h"

#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/net/same_host.h"

namespace evenshard {

absl::StatusOr<std::shared_ptr<WorkerBuffers>> WorkerBuffers::Map(const PlannedConfig& config,
                                                                  const JoinRequest& request) {
  if (!request.has_shared_buffers()) return absl::NotFoundError("the worker offers no buffers");
  if (!MayShareMemory(config.proto().exchange())) {
    return absl::FailedPreconditionError(
        "the shard's config has exchange.shared_memory: false or an encoding other than FLOAT32");
  }
  if (config.proto().recovery().has_etcd()) {
    // A paused process that has lost its role could go on writing to the worker's memory.
    return absl::FailedPreconditionError("the shard's config has recovery.etcd");
  }
  auto buffers = std::make_shared<WorkerBuffers>();
  const SharedBuffers& offered = request.shared_buffers();
  for (const auto& [name, place, buffer] :
       {std::tuple("gradients", &offered.gradients(), &buffers->gradients),
        std::tuple("parameters", &offered.parameters(), &buffers->parameters)}) {
    absl::StatusOr<FloatBuffer> mapped = FloatBuffer::Map(*place, config.model().buffer_size());
    if (!mapped.ok()) {
      return absl::Status(mapped.status().code(),
                          absl::StrCat(name, ": ", mapped.status().message()));
    }
    *buffer = *std::move(mapped);
  }
  return buffers;
}

Segments WorkerBuffers::GradientOf(const Chunk& chunk) const {
  const float* const first = gradients.span().data() + chunk.model_offset;
  return {{reinterpret_cast<const char*>(first), chunk.size * sizeof(float)}};
}

uint64_t WorkerBuffers::Write(StoredChunk& chunk, std::optional<uint64_t> held_version) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  if (chunk.version() != held_version) {
    absl::c_copy(chunk.parameters(), parameters.data() + chunk.info().model_offset);
  }
  return chunk.version();
}

}  // namespace evenshard
