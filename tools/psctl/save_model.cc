#include "tools/psctl/save_model.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors.h"
#include "common/net/channel_options.h"
#include "common/net/pull.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tools/psctl/shard_calls.h"

namespace ps {
namespace {

// How long a ps process may take to say which view it follows.
constexpr absl::Duration kViewTimeout = absl::Seconds(5);

}  // namespace

absl::Status SaveModel(const Config& config, const std::string& path) {
  const SafetensorsLayout layout = MakeSafetensorsLayout(config.model());
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(path, layout.file_size));
  RETURN_IF_ERROR(file->WriteAt(0, layout.header));
  const std::vector<absl::StatusOr<std::string>> primaries = PrimaryAddresses(config, kViewTimeout);
  for (int shard = 0; shard < config.shards(); ++shard) {
    RETURN_IF_ERROR(primaries[shard].status());
    const std::string& address = *primaries[shard];
    const auto stub = ParameterServer::NewStub(CreateChannel(address, config.proto().limits()));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(
        absl::Now() + absl::Seconds(config.proto().limits().exchange_seconds())));
    const absl::Status pulled = PullShard(
        stub.get(), &context, config.plan(), shard,
        [&](const Chunk& chunk, const ParameterChunk& message) {
          const int64_t begin = chunk.begin * static_cast<int64_t>(sizeof(float));
          return file->WriteAt(layout.tensor_offsets[chunk.tensor] + begin, message.data());
        });
    if (!pulled.ok()) {
      return absl::Status(pulled.code(),
                          absl::StrCat("shard ", shard, " (", address, "): ", pulled.message()));
    }
  }
  return file->Commit();
}

}  // namespace ps
