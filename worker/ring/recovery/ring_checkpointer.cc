#include "worker/ring/recovery/ring_checkpointer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often, and for how long, the first worker looks whether the others have written their parts.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

RingCheckpointer::RingCheckpointer(const Options& options)
    : options_(options),
      folder_(options.storage, options.config->proto().recovery().checkpoint().folder()),
      part_(options.part->checkpoint_part()) {}

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
  const absl::Status copied = options_.part->CopyTo(parameters, &copy_);
  if (!copied.ok()) return Fail(cut, copied);
  thread_ = std::jthread([this, cut](const std::stop_token& stop) {
    if (const absl::Status written = Write(cut); !written.ok()) return Fail(cut, written);
    if (const absl::Status completed = Complete(cut, stop); !completed.ok()) {
      spdlog::warn("the checkpoint of iteration {} is not completed by this worker: {}",
                   cut.id.iteration, std::string(completed.message()));
    }
  });
}

void RingCheckpointer::Fail(const Cut& cut, const absl::Status& why) const {
  spdlog::warn("this worker's part of the checkpoint of iteration {} is not written: {}",
               cut.id.iteration, std::string(why.message()));
  folder_.RemoveIncomplete(cut.id, cut.run).IgnoreError();
}

void RingCheckpointer::Finish() {
  if (thread_.joinable()) thread_.join();
}

absl::Status RingCheckpointer::Write(const Cut& cut) const {
  RETURN_IF_ERROR(folder_.RemoveLeftOut(cut.id, cut.id, cut.run, part_.index, part_.parts));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ShardFileWriter> writer,
      ShardFileWriter::Create(options_.storage, folder_.path(), *options_.config, part_, cut));
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
  return writer->Commit(options_.view.number(), {worker_set.begin(), worker_set.end()});
}

absl::Status RingCheckpointer::Complete(const Cut& cut, const std::stop_token& stop) const {
  const bool is_first = part_.index == 0;
  const absl::Time last = options_.clock->Now() + kPatience;
  bool is_complete = false;
  do {
    const absl::StatusOr<bool> looked =
        folder_.TryComplete(cut.id, cut.run, part_.parts, options_.clock->Now());
    if (absl::IsNotFound(looked.status())) return absl::OkStatus();  // is old by now
    ASSIGN_OR_RETURN(is_complete, looked);
  } while (!is_complete && is_first && options_.clock->Now() < last &&
           options_.clock->SleepUntil(options_.clock->Now() + kLookPeriod, stop));
  if (!is_complete) return absl::OkStatus();
  if (is_first) spdlog::info("the checkpoint of iteration {} is complete", cut.id.iteration);
  return folder_.RemoveOld(options_.config->proto().recovery().checkpoint().keep());
}

}  // namespace evenshard
