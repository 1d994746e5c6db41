#include "tools/psctl/report/save_model.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors.h"
#include "common/net/channel_options.h"
#include "common/net/pull.h"
#include "common/reader/process_calls.h"
#include "common/reader/run_reader.h"
#include "proto/parameter_server.grpc.pb.h"

namespace evenshard {
namespace {

// How long a ps process may take to say which view it follows.
constexpr absl::Duration kViewTimeout = absl::Seconds(5);

absl::Duration Timeout(const PlannedConfig& config) {
  return absl::Seconds(config.proto().limits().exchange_seconds());
}

// The file that is written, chunk by chunk in any order. Thread-safe.
class ModelFile {
 public:
  ModelFile(const PlannedConfig& config, std::string path)
      : layout_(MakeSafetensorsLayout(config.model())), path_(std::move(path)) {}

  // Begins the file anew.
  absl::Status Begin() {
    absl::MutexLock lock(&mutex_);
    file_.reset();  // returns its disk space
    ASSIGN_OR_RETURN(file_, AtomicFile::Create(path_, layout_.file_size));
    return file_->WriteAt(0, layout_.header);
  }
  absl::Status Take(const Chunk& chunk, absl::string_view data) {
    absl::MutexLock lock(&mutex_);
    const int64_t begin = chunk.begin * static_cast<int64_t>(sizeof(float));
    return file_->WriteAt(layout_.tensor_offsets[chunk.tensor] + begin, data);
  }
  absl::Status Commit() {
    absl::MutexLock lock(&mutex_);
    return file_->Commit();
  }

 private:
  const SafetensorsLayout layout_;
  const std::string path_;
  absl::Mutex mutex_;
  std::unique_ptr<AtomicFile> file_ ABSL_GUARDED_BY(mutex_);
};

// Takes every chunk as it is, shard by shard.
absl::Status PullAll(const PlannedConfig& config, ModelFile& file) {
  RETURN_IF_ERROR(file.Begin());
  const std::vector<absl::StatusOr<std::string>> primaries = PrimaryAddresses(config, kViewTimeout);
  for (int shard = 0; shard < config.shards(); ++shard) {
    RETURN_IF_ERROR(primaries[shard].status());
    const std::string& address = *primaries[shard];
    const auto stub =
        ParameterServer::NewStub(CreateChannel(address, config.proto(), {.role = Role::kShard}));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + Timeout(config)));
    const absl::Status pulled = PullShard(stub.get(), &context, config.plan(), shard,
                                          [&](const Chunk& chunk, const ParameterChunk& message) {
                                            return file.Take(chunk, message.data());
                                          });
    if (!pulled.ok()) {
      return absl::Status(pulled.code(),
                          absl::StrCat("shard ", shard, " (", address, "): ", pulled.message()));
    }
  }
  return absl::OkStatus();
}

// For how long a slot may be on its way from one process to another. launch, which calls this too,
// moves it as soon as its process has died, and ends within limits.shutdown_seconds. With etcd the
// process's lease has to end first, after silence_seconds or 2 s.
absl::Duration Patience(const ClusterConfig& config) {
  if (!config.has_recovery()) return absl::ZeroDuration();
  if (!config.recovery().has_etcd()) return absl::Seconds(2);
  return 2 * absl::Seconds(2 + config.recovery().silence_seconds());
}

}  // namespace

absl::StatusOr<SavedModel> SaveModel(const PlannedConfig& config, const std::string& path) {
  if (config.proto().optimizer().kind() == OptimizerConfig::MEAN) {
    return config.FieldError("optimizer.kind",
                             "is MEAN, with which shards have mean gradients and no parameters, "
                             "allowed: to have a worker's program save its model");
  }
  ModelFile file(config, path);
  RunReader reader(
      {.config = &config, .patience = Patience(config.proto()), .waits_for_workers = false});
  SavedModel saved;
  const absl::StatusOr<int64_t> iteration = reader.Pull(
      RunReader::kAny, Timeout(config), [&] { return file.Begin(); },
      [&](const Chunk& chunk, absl::string_view data) { return file.Take(chunk, data); });
  if (iteration.ok()) {
    saved.iteration = *iteration;
  } else if (absl::IsFailedPrecondition(iteration.status()) ||
             absl::IsOutOfRange(iteration.status())) {
    saved.why_not = std::string(iteration.status().message());
    RETURN_IF_ERROR(PullAll(config, file));
  } else {
    return iteration.status();
  }
  RETURN_IF_ERROR(file.Commit());
  return saved;
}

}  // namespace evenshard
