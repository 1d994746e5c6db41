#include "common/net/pulled_chunks.h"

#include "absl/strings/str_cat.h"
#include "common/wire/encoding.h"

namespace evenshard {

absl::Status PulledChunks::Add(const ParameterChunk& message) {
  if (message.chunk() >= plan_.chunks().size() || plan_.chunks()[message.chunk()].shard != shard_) {
    return absl::DataLossError(
        absl::StrCat("sent chunk ", message.chunk(), ", which the plan does not give to it"));
  }
  if (message.encoding() != FLOAT32) {
    return absl::DataLossError(absl::StrCat("sent chunk ", message.chunk(), " as ",
                                            EncodingName(message.encoding()),
                                            ", expected FLOAT32"));
  }
  const size_t expected = plan_.chunks()[message.chunk()].size * sizeof(float);
  if (message.data().size() != expected && !(expected_.may_lack_data && message.data().empty())) {
    return absl::DataLossError(absl::StrCat("sent ", message.data().size(), " bytes as chunk ",
                                            message.chunk(), ", which has ", expected));
  }
  if (received_[message.chunk()]) {
    return absl::DataLossError(absl::StrCat("sent chunk ", message.chunk(), " twice"));
  }
  received_[message.chunk()] = true;
  if (expected_.iteration.value_or(message.iteration()) != message.iteration()) {
    return absl::DataLossError(absl::StrCat("sent chunk ", message.chunk(), " of iteration ",
                                            message.iteration(), ", expected ",
                                            *expected_.iteration));
  }
  return absl::OkStatus();
}

absl::Status PulledChunks::CheckEnd() const {
  for (const uint32_t chunk : plan_.chunks_of_shard(shard_)) {
    if (!received_[chunk]) return absl::DataLossError(absl::StrCat("did not send chunk ", chunk));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
