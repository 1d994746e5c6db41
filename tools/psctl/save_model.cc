#include "tools/psctl/save_model.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/net/channel_options.h"
#include "common/net/pull.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tools/psctl/safetensors.h"

namespace ps {

absl::Status SaveModel(const Config& config, const std::string& path) {
  const SafetensorsLayout layout = MakeSafetensorsLayout(config.model());
  absl::StatusOr<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(path, layout.file_size);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->WriteAt(0, layout.header);
  for (int shard = 0; status.ok() && shard < config.shards(); ++shard) {
    const auto stub =
        ParameterServer::NewStub(CreateChannel(config.address(shard), config.proto().limits()));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(
        absl::Now() + absl::Seconds(config.proto().limits().exchange_seconds())));
    status = PullShard(stub.get(), &context, config.plan(), shard,
                       [&](const Chunk& chunk, const ParameterChunk& message) {
                         const int64_t begin = chunk.begin * static_cast<int64_t>(sizeof(float));
                         return (*file)->WriteAt(layout.tensor_offsets[chunk.tensor] + begin,
                                                 message.data());
                       });
    if (!status.ok()) {
      status = absl::Status(
          status.code(),
          absl::StrCat("shard ", shard, " (", config.address(shard), "): ", status.message()));
    }
  }
  return status.ok() ? (*file)->Commit() : status;
}

}  // namespace ps
