#include "server/checkpointer.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace ps {
namespace {

// How often the thread looks for chunks that have been confirmed since it last looked.
constexpr absl::Duration kPeriod = absl::Milliseconds(5);

int64_t BytesOf(const StoredChunk& chunk) {
  return chunk.arrays() * chunk.info().size * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Checkpointer::Checkpointer(Options options)
    : options_(std::move(options)),
      proto_(options_.config->proto()),
      folder_(options_.storage, proto_.recovery().checkpoint().folder()) {
  // A chunk that has come further than others cannot be in a cut of theirs.
  for (StoredChunk& chunk : options_.store->chunks()) {
    absl::ReaderMutexLock chunk_lock(&chunk.mutex);
    absl::MutexLock lock(&mutex_);
    last_begun_ = std::max(last_begun_, chunk.clock().iteration);
  }
  if (options_.has_thread) {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }
}

Checkpointer::~Checkpointer() { Stop(); }

void Checkpointer::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

bool Checkpointer::IsSync() const { return proto_.update().policy() == Update::SYNC; }

void Checkpointer::Adopt(const View& view) {
  absl::MutexLock lock(&mutex_);
  view_ = view;
  view_.clear_slot();
  view_.clear_worker();
}

bool Checkpointer::IsDue(uint64_t iteration) const {
  if (iteration <= last_begun_) return false;
  const Recovery::Checkpoint& settings = proto_.recovery().checkpoint();
  return settings.has_every_iterations() ? iteration % settings.every_iterations() == 0
                                         : iteration == view_.cut_iteration();
}

void Checkpointer::Begin(uint64_t iteration) {
  last_begun_ = iteration;
  if (active_.has_value()) {
    ++failures_;
    last_failure_ = absl::StrCat("the checkpoint of iteration ", iteration,
                                 " was left out, because that of iteration ",
                                 active_->cut.id.iteration, " was still being written");
    spdlog::warn("slot {}: {}", options_.slot, last_failure_);
    return;
  }
  const size_t chunks = options_.store->chunks().size();
  active_.emplace(CheckpointId{.generation = view_.generation(), .iteration = iteration}, chunks);
  active_->cut.run = view_.run();
  ++changes_;
}

void Checkpointer::Changed(const StoredChunk& chunk) {
  absl::MutexLock lock(&mutex_);
  if (!IsSync()) return;
  if (IsDue(chunk.clock().iteration)) Begin(chunk.clock().iteration);
  if (active_.has_value()) ++changes_;
}

bool Checkpointer::MayChange(int index, const StoredChunk& chunk) {
  absl::MutexLock lock(&mutex_);
  if (!IsSync()) return true;
  const uint64_t iteration = chunk.clock().iteration;
  if (IsDue(iteration)) Begin(iteration);
  if (!active_.has_value() || active_->cut.id.iteration != iteration || options_.breaks_cuts ||
      active_->progress[index] != Progress::kDue) {
    return true;
  }
  if (active_->copied_bytes + BytesOf(chunk) > proto_.recovery().checkpoint().buffer_bytes()) {
    if (active_->held_up.empty()) active_->held_up_since = options_.clock->Now();
    active_->held_up.insert(index);
    return false;
  }
  active_->copied_bytes += BytesOf(chunk);
  active_->progress[index] = Progress::kCopied;
  active_->copies.push_back(CopyOf(index, chunk));
  ++changes_;
  return true;
}

Checkpointer::Copy Checkpointer::CopyOf(int index, const StoredChunk& chunk) {
  Copy copy{.index = index, .clock = chunk.clock()};
  if (!spare_.empty()) {
    copy.arrays = std::move(spare_.back());
    spare_.pop_back();
    copy.arrays.clear();
  }
  copy.arrays.reserve(chunk.arrays() * chunk.info().size);
  for (int i = 0; i < chunk.arrays(); ++i) {
    copy.arrays.insert(copy.arrays.end(), chunk.array(i).begin(), chunk.array(i).end());
  }
  return copy;
}

void Checkpointer::Tick() {
  const double every = proto_.recovery().checkpoint().every_seconds();
  {
    absl::MutexLock lock(&mutex_);
    // Without an iteration in common, the slots count the checkpoints by the time of day.
    const uint64_t number =
        IsSync() ? 0
                 : static_cast<uint64_t>(
                       absl::ToDoubleSeconds(options_.clock->Now() - absl::UnixEpoch()) / every);
    if (last_begun_ == 0 && !IsSync()) last_begun_ = number;  // the first is due after a while
    if (number > last_begun_) Begin(number);
  }
  TryComplete();
}

std::optional<Checkpointer::Copy> Checkpointer::TakeChunk(int index) {
  StoredChunk& chunk = options_.store->chunks()[index];
  absl::ReaderMutexLock chunk_lock(&chunk.mutex);
  if (!options_.is_confirmed(index)) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  if (active_->progress[index] != Progress::kDue) return std::nullopt;
  const uint64_t iteration = chunk.clock().iteration;
  if (IsSync() && iteration != active_->cut.id.iteration && !options_.breaks_cuts) {
    return std::nullopt;
  }
  active_->progress[index] = Progress::kTaken;
  return CopyOf(index, chunk);
}

std::optional<Checkpointer::Copy> Checkpointer::TakeNext() {
  std::optional<int> held_up;
  {
    absl::MutexLock lock(&mutex_);
    if (!active_->copies.empty()) {
      Copy copy = std::move(active_->copies.front());
      active_->copies.pop_front();
      return copy;
    }
    if (!active_->held_up.empty()) held_up = *active_->held_up.begin();
  }
  if (held_up.has_value()) {
    if (std::optional<Copy> copy = TakeChunk(*held_up); copy.has_value()) return copy;
  }
  const int chunks = static_cast<int>(options_.store->chunks().size());
  for (int i = 0; i < chunks; ++i) {
    const int index = (next_ + i) % chunks;
    if (std::optional<Copy> copy = TakeChunk(index); copy.has_value()) {
      next_ = index + 1;
      return copy;
    }
  }
  return std::nullopt;
}

bool Checkpointer::Work() {
  Cut cut;
  size_t left;
  {
    absl::MutexLock lock(&mutex_);
    if (!active_.has_value()) return false;
    cut = active_->cut;
    left = active_->left;
  }
  if (left == 0) {
    End(Finish(cut));
    return true;
  }
  if (writer_ == nullptr) {
    auto writer = ShardFileWriter::Create(options_.storage, folder_.path(), *options_.config,
                                          options_.slot, cut);
    if (!writer.ok()) {
      End(writer.status());
      return true;
    }
    writer_ = *std::move(writer);
    next_ = 0;
  }
  std::optional<Copy> copy = TakeNext();
  if (!copy.has_value()) return false;
  if (const absl::Status written = Write(*copy); !written.ok()) {
    End(written);
    return true;
  }
  std::set<int> resumed;
  {
    absl::MutexLock lock(&mutex_);
    --active_->left;
    if (active_->progress[copy->index] == Progress::kCopied) {
      active_->copied_bytes -= copy->arrays.size() * sizeof(float);
    }
    spare_.push_back(std::move(copy->arrays));
    if (!active_->held_up.empty()) {
      held_up_ += options_.clock->Now() - active_->held_up_since;
      resumed.swap(active_->held_up);  // those for which there is no room will wait again
    }
  }
  ResumeChunks(resumed);
  return true;
}

absl::Status Checkpointer::Write(const Copy& copy) {
  const StoredChunk& chunk = options_.store->chunks()[copy.index];
  const size_t size = chunk.info().size;
  std::vector<const float*> arrays;
  for (size_t offset = size; offset < copy.arrays.size(); offset += size) {
    arrays.push_back(copy.arrays.data() + offset);
  }
  return writer_->Add(chunk.info(), absl::MakeConstSpan(copy.arrays.data(), size), arrays,
                      copy.clock);
}

absl::Status Checkpointer::Finish(const Cut& cut) {
  uint64_t view;
  std::vector<Crew> crews;
  {
    absl::MutexLock lock(&mutex_);
    view = view_.number();
    for (const Crew& crew : view_.crew()) {
      // What comes later is none of the cut's.
      if (crew.from_iteration() <= cut.id.iteration || !IsSync()) crews.push_back(crew);
    }
  }
  RETURN_IF_ERROR(writer_->Commit(view, crews));
  absl::MutexLock lock(&mutex_);
  written_ = cut.id;
  return absl::OkStatus();
}

void Checkpointer::End(const absl::Status& status) {
  writer_.reset();
  std::set<int> resumed;
  std::vector<std::vector<float>> spare;  // freed without the lock
  {
    absl::MutexLock lock(&mutex_);
    if (!status.ok() && !absl::IsAlreadyExists(status)) {
      ++failures_;
      last_failure_ = std::string(status.message());
      spdlog::warn("slot {}: no checkpoint of iteration {}: {}", options_.slot,
                   active_->cut.id.iteration, last_failure_);
    }
    resumed.swap(active_->held_up);
    if (!resumed.empty()) held_up_ += options_.clock->Now() - active_->held_up_since;
    active_.reset();
    spare.swap(spare_);
  }
  ResumeChunks(resumed);
  TryComplete();
}

void Checkpointer::ResumeChunks(const std::set<int>& chunks) {
  for (const int index : chunks) options_.resume(index);
}

void Checkpointer::TryComplete() {
  CheckpointId id;
  uint64_t run;
  {
    absl::MutexLock lock(&mutex_);
    if (!written_.has_value()) return;
    id = *written_;
    run = view_.run();
  }
  const absl::StatusOr<bool> complete =
      folder_.TryComplete(id, run, options_.config->shards(), options_.clock->Now());
  if (complete.ok() && !*complete) return;
  const absl::Status removed = complete.ok() && options_.slot == 0
                                   ? folder_.RemoveOld(proto_.recovery().checkpoint().keep())
                                   : absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (written_ != id) return;
  written_.reset();
  for (const absl::Status& status : {complete.status(), removed}) {
    if (status.ok()) continue;
    ++failures_;
    last_failure_ = std::string(status.message());
    spdlog::warn("slot {}: {}", options_.slot, last_failure_);
  }
  if (!complete.ok()) return;
  durable_ = id;
  durable_since_ = options_.clock->Now();
  if (options_.slot == 0) spdlog::info("the checkpoint of iteration {} is complete", id.iteration);
}

void Checkpointer::Run(const std::stop_token& stop) {
  const RealClock clock;
  uint64_t seen = 0;
  while (!stop.stop_requested()) {
    if (Work()) continue;
    // Wait for a change, or for confirmations, which are not announced.
    const absl::Time wake = clock.Now() + 20 * kPeriod;
    while (clock.SleepUntil(clock.Now() + kPeriod, stop) && clock.Now() < wake) {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(seen, changes_) != changes_ || active_.has_value()) break;
    }
  }
}

void Checkpointer::FillStats(ShardStats::Recovery* recovery) const {
  absl::MutexLock lock(&mutex_);
  if (durable_.has_value()) {
    recovery->set_checkpoint_iteration(durable_->iteration);
    recovery->set_checkpoint_age_seconds(
        absl::ToDoubleSeconds(options_.clock->Now() - durable_since_));
  }
  recovery->set_checkpoint_wait_seconds(absl::ToDoubleSeconds(held_up_));
  recovery->set_checkpoint_failures(failures_);
  recovery->set_last_checkpoint_failure(last_failure_);
}

}  // namespace ps
