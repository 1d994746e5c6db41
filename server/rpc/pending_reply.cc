#include "server/rpc/pending_reply.h"

#include "common/wire/encoding.h"

namespace evenshard {

bool VersionsTell(const Shard& shard) {
  return shard.config().is_synchronous() || shard.view() == 0;
}

int64_t DataBytes(Shard* shard, const PendingReply& reply) {
  if (reply.written_version.has_value() || reply.dropped) return 0;
  const Chunk& chunk = shard->chunk(reply.chunk).info();
  return EncodedBytes(shard->config().AnswerEncoding(chunk), chunk.size);
}

ParameterHeader HeaderOf(const Shard& shard, const StoredChunk& chunk, const PendingReply& reply) {
  const PlannedConfig& config = shard.config();
  const ChunkClock& clock = chunk.clock();
  ParameterHeader header{.iteration = reply.iteration,
                         .chunk = reply.chunk,
                         .version = reply.written_version.value_or(chunk.version()),
                         .view = shard.view(),
                         .all_absent = clock.all_absent && clock.iteration == reply.iteration + 1,
                         .assignments = clock.assignments,
                         .recent_assignments = clock.recent_assignments,
                         .dropped = reply.dropped,
                         .next_iteration = config.has_quorum() ? clock.iteration : 0};
  const bool is_new = header.version != reply.base_version;
  header.unchanged = !is_new && !reply.written_version.has_value() && !reply.dropped;
  // Only to parameters of the version before can the update be added.
  header.is_difference =
      !reply.dropped && !chunk.EncodedUpdate().empty() && reply.base_version == header.version - 1;
  header.encoding = header.is_difference ? config.AnswerEncoding(chunk.info())
                                         : config.ParameterEncoding(chunk.info());
  return header;
}

}  // namespace evenshard
