#include "worker/ring/recovery/ring_checkpointer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often, and for how long, the first worker looks whether the others have written their parts.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

RingCheckpointer::RingCheckpointer(const Options& options)
    : options_(options), part_(options.part->checkpoint_part()) {}

bool RingCheckpointer::IsCutAt(int64_t iteration) const {
  return iteration > 0 &&
         iteration % options_.config->proto().recovery().checkpoint().every_iterations() == 0;
}

void RingCheckpointer::TakeCut(int64_t iteration, absl::Span<const float> parameters) {
  thread_ = {};
  const auto number = static_cast<uint64_t>(iteration);
  const Cut cut = {.id = {.generation = options_.view.generation(), .iteration = number},
                   .exchange = number,
                   .run = options_.view.run()};
  const auto tell = [cut](const absl::Status& written) {
    if (written.ok()) return;
    spdlog::warn("this worker's part of the checkpoint of iteration {} is not written: {}",
                 cut.id.iteration, std::string(written.message()));
  };
  const absl::Status copied = options_.part->CopyTo(parameters, &copy_);
  if (!copied.ok()) return tell(copied);
  thread_ =
      std::jthread([this, cut, tell](const std::stop_token& stop) { tell(Write(cut, stop)); });
}

void RingCheckpointer::Finish() {
  if (thread_.joinable()) thread_.join();
}

absl::Status RingCheckpointer::Write(const Cut& cut, const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardFileWriter> writer,
                   ShardFileWriter::Create(
                       options_.storage, options_.config->proto().recovery().checkpoint().folder(),
                       *options_.config, part_, cut));
  const auto steps = static_cast<uint64_t>(copy_.steps);
  const ChunkClock clock = {.version = steps, .iteration = cut.exchange, .steps = steps};
  for (const Chunk& chunk : part_.chunks) {
    std::vector<const float*> state;
    for (size_t i = 1; i < copy_.arrays.size(); ++i) {
      state.push_back(copy_.arrays[i].span().data() + chunk.shard_offset);
    }
    const absl::Span<const float> parameters(copy_.arrays[0].span().data() + chunk.shard_offset,
                                             static_cast<size_t>(chunk.size));
    RETURN_IF_ERROR(writer->Add(chunk, parameters, state, clock));
  }
  const auto& worker_set = options_.view.worker_set();
  RETURN_IF_ERROR(writer->Commit(options_.view.number(), {worker_set.begin(), worker_set.end()}));
  return Complete(cut, stop);
}

absl::Status RingCheckpointer::Complete(const Cut& cut, const std::stop_token& stop) const {
  const Recovery::Checkpoint& settings = options_.config->proto().recovery().checkpoint();
  const CheckpointFolder folder(options_.storage, settings.folder());
  const bool is_first = part_.index == 0;
  const absl::Time last = options_.clock->Now() + kPatience;
  bool is_complete = false;
  do {
    const absl::StatusOr<bool> looked =
        folder.TryComplete(cut.id, cut.run, part_.parts, options_.clock->Now());
    if (absl::IsNotFound(looked.status())) return absl::OkStatus();  // is old by now
    ASSIGN_OR_RETURN(is_complete, looked);
  } while (!is_complete && is_first && options_.clock->Now() < last &&
           options_.clock->SleepUntil(options_.clock->Now() + kLookPeriod, stop));
  if (!is_complete || !is_first) return absl::OkStatus();
  spdlog::info("the checkpoint of iteration {} is complete", cut.id.iteration);
  return folder.RemoveOld(settings.keep());
}

}  // namespace evenshard
