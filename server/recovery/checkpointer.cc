#include "server/recovery/checkpointer.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/config/config_contract.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often the thread looks for chunks that have been confirmed since it last looked.
constexpr absl::Duration kPeriod = absl::Milliseconds(5);

// For how many checkpoints this slot's part may wait for those of others.
constexpr size_t kMostWaiting = 3;

// Returns the floats of all arrays of a chunk.
int64_t FloatsOf(const StoredChunk& chunk) { return chunk.arrays() * chunk.info().size; }

}  // namespace

Checkpointer::Checkpointer(Options options)
    : options_(std::move(options)),
      proto_(options_.config->proto()),
      folder_(options_.storage, proto_.recovery().checkpoint().folder()),
      completion_({.folder = &folder_,
                   .slot = options_.slot,
                   .shards = options_.config->shards(),
                   .keep = proto_.recovery().checkpoint().keep()}),
      copy_memory_(proto_.recovery().checkpoint().buffer_bytes()) {
  // A chunk that has come further than others cannot be in a cut of theirs.
  for (StoredChunk& chunk : options_.store->chunks()) {
    absl::ReaderMutexLock chunk_lock(&chunk.mutex);
    absl::MutexLock lock(&mutex_);
    last_begun_.exchange = std::max(last_begun_.exchange, chunk.clock().iteration);
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

void Checkpointer::WorkUntil(absl::Time deadline) {
  while (options_.clock->Now() < deadline && Work()) {
  }
}

void Checkpointer::FinishBy(absl::Time deadline, bool is_over) {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ |= is_over;
  }
  Stop();
  WorkUntil(deadline);
  if (!is_over || !HasTrained()) return;
  BeginLast();
  const bool lacks_registered = LacksRegistered();
  if (!lacks_registered) WorkUntil(deadline);
  {
    absl::MutexLock lock(&mutex_);
    if (!active_.has_value()) return;
  }
  if (lacks_registered) {
    return End(absl::FailedPreconditionError(
        "what the workers have registered is not known where slot 0 has moved to"));
  }
  End(options_.clock->Now() < deadline
          ? absl::UnavailableError("not all of it is known where the run has ended")
          : absl::DeadlineExceededError("limits.shutdown_seconds were over before it was written"));
}

Cut Checkpointer::LastCut() {
  std::optional<ChunkClock> clock;
  if (IsSync()) {
    StoredChunk& chunk = options_.store->chunks().front();
    absl::ReaderMutexLock chunk_lock(&chunk.mutex);
    clock = chunk.clock();
  }
  absl::MutexLock lock(&mutex_);
  return clock.has_value() ? CutAt(view_, *clock)
                           : CutByClock(view_, LastNumberByClock(proto_, options_.clock->Now()));
}

bool Checkpointer::HasTrained() {
  if (has_changed_ || !options_.takes_over) return has_changed_;
  const Cut last = LastCut();
  absl::MutexLock lock(&mutex_);
  const std::optional<CheckpointId> start = ParseCheckpointId(view_.checkpoint());
  return last.id.iteration > (start.has_value() ? start->iteration : 0);
}

bool Checkpointer::LacksRegistered() {
  if (options_.slot != 0 || !options_.takes_over || !IsSync()) return false;
  if (options_.store->registered_states().is_used()) return false;
  const auto newest = folder_.Newest(Verification::kQuick, false, nullptr);
  if (!newest.ok() || !newest->has_value()) return false;
  const absl::StatusOr<Manifest> manifest = folder_.ReadManifest((*newest)->id);
  return manifest.ok() && !manifest->records[0].registered.empty();
}

void Checkpointer::BeginLast() {
  LookAtFolder();  // another slot may have removed what this one has written
  const Cut last = LastCut();
  absl::MutexLock lock(&mutex_);
  if (!active_.has_value() && last.id.iteration > 0 && completion_.newest() < last.id) {
    Note(last);
    Activate();
  }
}

bool Checkpointer::IsSync() const { return IsSynchronous(proto_.update()); }

void Checkpointer::Adopt(const View& view) {
  absl::MutexLock lock(&mutex_);
  view_ = view;
  view_.clear_slot();
  view_.clear_worker();
  is_over_ |= view.finished();
}

void Checkpointer::Note(const Cut& cut) {
  last_begun_ = cut;
  last_number_ = NumberOfCut(proto_, view_, cut);
  // Also what this slot has failed to write, or a process that had it before, is never complete.
  tidies_ = true;
}

void Checkpointer::Begin(const Cut& cut) {
  Note(cut);
  if (last_number_ % stride_ != 0) return;
  if (active_.has_value()) {
    LeaveOut(cut, absl::StrCat("that of iteration ", active_->cut.id.iteration,
                               " was still being written"));
    return;
  }
  if (completion_.waiting() >= kMostWaiting) {
    LeaveOut(cut, absl::StrCat(completion_.waiting(), " earlier ones wait for other slots"));
    return;
  }
  Activate();
}

void Checkpointer::Activate() {
  active_.emplace(last_begun_, options_.store->chunks().size());
  active_->number = last_number_;
  ++changes_;
}

void Checkpointer::LeaveOut(const Cut& cut, absl::string_view reason) {
  stride_ *= 2;
  ++failures_;
  last_failure_ =
      absl::StrCat("the checkpoint of iteration ", cut.id.iteration, " was left out, because ",
                   reason, "; one in ", stride_, " is begun now");
  spdlog::warn("slot {}: {}", options_.slot, last_failure_);
}

std::optional<uint64_t> Checkpointer::Changed(int index, const StoredChunk& chunk,
                                              const ChunkChange& change) {
  if (!has_changed_) has_changed_ = true;  // reads, as threads share it
  if (!IsSync()) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  if (IsDue(chunk.clock())) Begin(CutAt(view_, chunk.clock()));
  if (active_.has_value()) ++changes_;
  return std::nullopt;
}

bool Checkpointer::BeforeChange(int index, const StoredChunk& chunk) {
  const uint64_t iteration = chunk.clock().iteration;
  Copy copy{.index = index};
  CheckpointId cut;
  {
    absl::MutexLock lock(&mutex_);
    if (IsDue(chunk.clock())) Begin(CutAt(view_, chunk.clock()));
    if (!active_.has_value() || active_->cut.exchange != iteration) return true;
    // Every worker has pushed at the cut's exchange, and given what it has registered before.
    if (!active_->registered.has_value()) {
      active_->registered =
          options_.store->registered_states().At(iteration).value_or(StatesByName());
    }
    if (options_.breaks_cuts || active_->progress[index] != Progress::kDue) return true;
    std::optional<FloatBuffer> memory = copy_memory_.Take(FloatsOf(chunk));
    if (!memory.has_value()) {
      if (active_->held_up.empty()) active_->held_up_since = options_.clock->Now();
      active_->held_up.insert(index);
      return false;
    }
    copy.arrays = *std::move(memory);
    active_->progress[index] = Progress::kCopied;
    cut = active_->cut.id;
  }
  Fill(copy, chunk);  // without the lock, so that chunks are copied side by side
  absl::MutexLock lock(&mutex_);
  if (active_.has_value() && active_->cut.id == cut) {
    active_->copies.push_back(std::move(copy));
    ++changes_;
  } else {
    copy_memory_.GiveBack(std::move(copy.arrays));
  }
  return true;
}

void Checkpointer::Fill(Copy& copy, const StoredChunk& chunk) {
  copy.clock = chunk.clock();
  float* out = copy.arrays.data();
  for (int i = 0; i < chunk.arrays(); ++i) out = absl::c_copy(chunk.array(i), out);
}

void Checkpointer::Tick() {
  const uint64_t number = IsSync() ? 0 : NumberByClock(proto_, options_.clock->Now());
  absl::MutexLock lock(&mutex_);
  if (last_begun_.exchange == 0 && !IsSync()) {
    last_begun_.exchange = number;  // the first is due after a while
  }
  const bool may_begin = view_.number() > 0 || has_changed_;
  if (number > last_begun_.exchange && may_begin && options_.holds_role()) {
    Begin(CutByClock(view_, number));
  }
  if (completion_.waiting() == 0 && !tidies_) return;
  looks_ = true;
  ++changes_;
}

std::optional<Checkpointer::Copy> Checkpointer::TakeChunk(int index) {
  StoredChunk& chunk = options_.store->chunks()[index];
  absl::ReaderMutexLock chunk_lock(&chunk.mutex);
  if (IsSync() && !options_.is_confirmed(index)) return std::nullopt;
  {
    absl::MutexLock lock(&mutex_);
    if (active_->progress[index] != Progress::kDue) return std::nullopt;
    const uint64_t iteration = chunk.clock().iteration;
    if (IsSync() && iteration != active_->cut.exchange && !options_.breaks_cuts) {
      return std::nullopt;
    }
    active_->progress[index] = Progress::kTaken;
  }
  Copy copy{.index = index, .arrays = std::move(own_copy_)};
  Fill(copy, chunk);
  return copy;
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
  size_t left = 0;
  bool looks;
  {
    absl::MutexLock lock(&mutex_);
    looks = std::exchange(looks_, false);
    if (!looks && !active_.has_value()) return false;
    if (active_.has_value()) {
      cut = active_->cut;
      left = active_->left;
    }
  }
  if (looks) {
    LookAtFolder();
    return true;
  }
  if (left == 0) {
    if (!KnowsRegistered()) return false;
    End(Finish(cut));
    return true;
  }
  if (writer_ == nullptr) {
    if (const absl::Status opened = OpenWriter(cut); !opened.ok()) {
      End(opened);
      return true;
    }
  }
  const absl::Time began = options_.clock->Now();
  std::optional<Copy> copy = TakeNext();
  if (!copy.has_value()) return false;
  const absl::Status written = Write(*copy);
  writing_ += options_.clock->Now() - began;
  std::set<int> resumed;
  {
    absl::MutexLock lock(&mutex_);
    if (active_->progress[copy->index] == Progress::kCopied) {
      copy_memory_.GiveBack(std::move(copy->arrays));
    } else {
      own_copy_ = std::move(copy->arrays);
    }
    if (written.ok()) {
      --active_->left;
      if (!active_->held_up.empty()) {
        held_up_ += options_.clock->Now() - active_->held_up_since;
        resumed.swap(active_->held_up);  // those for which there is no room will wait again
      }
    }
  }
  if (!written.ok()) {
    End(written);
    return true;
  }
  for (const int index : resumed) options_.resume(index);
  return true;
}

absl::Status Checkpointer::OpenWriter(const Cut& cut) {
  ASSIGN_OR_RETURN(writer_,
                   ShardFileWriter::Create(options_.storage, folder_.path(), *options_.config,
                                           PartOfSlot(*options_.config, options_.slot), cut));
  next_ = 0;
  writing_ = absl::ZeroDuration();
  if (own_copy_.data() != nullptr) return absl::OkStatus();
  int64_t floats = 0;
  for (const StoredChunk& chunk : options_.store->chunks()) {
    floats = std::max(floats, FloatsOf(chunk));
  }
  ASSIGN_OR_RETURN(own_copy_, FloatBuffer::Allocate(floats));
  return absl::OkStatus();
}

absl::Status Checkpointer::Write(const Copy& copy) {
  const StoredChunk& chunk = options_.store->chunks()[copy.index];
  const absl::Span<const float> all = copy.arrays.span().first(FloatsOf(chunk));
  const size_t size = chunk.info().size;
  std::vector<const float*> arrays;
  for (int i = 1; i < chunk.arrays(); ++i) arrays.push_back(all.data() + i * size);
  return writer_->Add(chunk.info(), all.first(size), arrays, copy.clock);
}

bool Checkpointer::KnowsRegistered() {
  const RegisteredStates& states = options_.store->registered_states();
  if (!IsSync() || !states.is_used()) return true;
  absl::MutexLock lock(&mutex_);
  if (!active_->registered.has_value()) active_->registered = states.At(active_->cut.exchange);
  return active_->registered.has_value();
}

absl::Status Checkpointer::Finish(const Cut& cut) {
  uint64_t view;
  std::vector<WorkerSet> worker_sets;
  StatesByName registered;
  {
    absl::MutexLock lock(&mutex_);
    view = view_.number();
    registered = active_->registered.value_or(StatesByName());
    for (const WorkerSet& worker_set : view_.worker_set()) {
      // What comes later is none of the cut's.
      if (worker_set.from_iteration() <= cut.exchange || !IsSync())
        worker_sets.push_back(worker_set);
    }
  }
  if (!IsSync() && !options_.holds_role()) {
    return absl::UnavailableError("the slot may be another process's by now");
  }
  const absl::Time began = options_.clock->Now();
  RETURN_IF_ERROR(writer_->Commit(view, worker_sets, std::move(registered)));
  spdlog::info("slot {}: wrote {:.3f} GB of the checkpoint of iteration {} in {:.3f} s",
               options_.slot, static_cast<double>(writer_->file_bytes()) / 1e9, cut.id.iteration,
               absl::ToDoubleSeconds(writing_ + options_.clock->Now() - began));
  absl::MutexLock lock(&mutex_);
  completion_.Add(cut.id, active_->number);
  return absl::OkStatus();
}

void Checkpointer::End(const absl::Status& status) {
  writer_.reset();
  const bool failed = !status.ok() && !absl::IsAlreadyExists(status);
  CheckpointId id;
  uint64_t run;
  std::set<int> resumed;
  {
    absl::MutexLock lock(&mutex_);
    id = active_->cut.id;
    run = active_->cut.run;
    if (failed) {
      CountFailure(absl::Status(status.code(), absl::StrCat("no checkpoint of iteration ",
                                                            id.iteration, ": ", status.message())));
    }
    resumed.swap(active_->held_up);
    if (!resumed.empty()) held_up_ += options_.clock->Now() - active_->held_up_since;
    for (Copy& copy : active_->copies) copy_memory_.GiveBack(std::move(copy.arrays));
    active_.reset();
  }
  for (const int index : resumed) options_.resume(index);
  if (failed) {
    // Without this slot's part it cannot become complete, and the next one may need the room.
    folder_.RemoveIncomplete(id, run).IgnoreError();
  }
  LookAtFolder();
}

void Checkpointer::CountFailure(const absl::Status& status) {
  ++failures_;
  if (std::exchange(last_failure_, std::string(status.message())) == status.message()) return;
  spdlog::warn("slot {}: {}", options_.slot, last_failure_);
}

void Checkpointer::LookAtFolder() {
  CheckpointCompletion::Progress progress;
  {
    absl::MutexLock lock(&mutex_);
    progress.run = view_.run();
    // What lacks the slot's part at the end may get it yet, and goes with what is old otherwise.
    if (std::exchange(tidies_, false) && !is_over_) {
      progress.left_out_to = last_begun_.id;
    }
    progress.is_over = is_over_;
    if (active_.has_value()) progress.writes = active_->cut.id;
  }
  const CheckpointCompletion::Found found = completion_.Look(progress, options_.clock->Now());
  absl::MutexLock lock(&mutex_);
  if (!found.status.ok()) CountFailure(found.status);
  if (found.number.has_value() && 2 * (last_number_ - *found.number) < stride_) {
    stride_ = (stride_ + 1) / 2;
  }
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
  completion_.FillStats(options_.clock->Now(), recovery);
  recovery->set_checkpoint_wait_seconds(absl::ToDoubleSeconds(held_up_));
  recovery->set_checkpoint_failures(failures_);
  recovery->set_last_checkpoint_failure(last_failure_);
}

}  // namespace evenshard
