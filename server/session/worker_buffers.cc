#include "server/session/worker_buffers.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/same_host.h"
#include "common/wire/encoding.h"

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
  const Model& model = config.model();
  const auto parameter_floats = model.parameter_bytes() / static_cast<int64_t>(sizeof(float));
  for (const auto& [name, place, floats, buffer] :
       {std::tuple("gradients", &offered.gradients(), model.buffer_size(), &buffers->gradients),
        std::tuple("parameters", &offered.parameters(), parameter_floats, &buffers->parameters)}) {
    absl::StatusOr<FloatBuffer> mapped = FloatBuffer::Map(*place, floats);
    if (!mapped.ok()) {
      return absl::Status(mapped.status().code(),
                          absl::StrCat(name, ": ", mapped.status().message()));
    }
    *buffer = *std::move(mapped);
  }
  return buffers;
}

Segments WorkerBuffers::GradientOf(const PlannedConfig& config, bool assigned,
                                   const Chunk& chunk) const {
  const PlannedConfig::Place place = config.GradientPlace(assigned, chunk);
  return {{reinterpret_cast<const char*>(gradients.span().data()) + place.begin,
           static_cast<size_t>(place.bytes)}};
}

uint64_t WorkerBuffers::Write(const PlannedConfig& config, uint32_t rank, StoredChunk& chunk,
                              std::optional<uint64_t> held_version) {
  absl::ReaderMutexLock lock(&chunk.mutex);
  if (chunk.version() != held_version) {
    const PlannedConfig::Place place = config.ParameterPlace(chunk.info());
    Encode(place.type, chunk.parameters(),
           reinterpret_cast<char*>(parameters.data()) + place.begin);
  }
  chunk.sent().Note(rank);
  return chunk.version();
}

}  // namespace evenshard
