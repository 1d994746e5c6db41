// A snapshot of iteration k under SYNC, step by step:
//   1. Open registers the reader, and then looks at every chunk under its lock: a chunk at k is
//      ready, one below k is not, and one that has passed k ends the attempt. From here on no chunk
//      leaves k unnoticed.
//   2. Take hands over a chunk that is ready: from where it lies, under its lock, if it still is at
//      k, and otherwise the copy.
//   3. BeforeChange copies a chunk that leaves k before every reader has taken it.
//   4. Changed makes a chunk ready that has come to k, and wakes the readers that wait.

#include "server/store/snapshots.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

int64_t MaxBytes(const PlannedConfig& config, ParameterStore& store) {
  if (const int64_t given = config.proto().limits().snapshot_bytes(); given > 0) return given;
  int64_t elements = 0;
  for (const StoredChunk& chunk : store.chunks()) elements += chunk.info().size;
  return 2 * elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace

// A copy of a chunk's parameters.
struct Snapshots::Kept {
  Kept(std::shared_ptr<CopyMemory> owner, FloatBuffer memory)
      : owner(std::move(owner)), memory(std::move(memory)) {}
  ~Kept() { owner->GiveBack(std::move(memory)); }

  const std::shared_ptr<CopyMemory> owner;
  FloatBuffer memory;  // at least as large as the chunk
  ChunkClock clock = {};
};

// Guarded by Snapshots::mutex_, but for `k`.
struct Snapshots::Snapshot {
  Snapshot(uint64_t k, size_t chunks) : k(k), kept(chunks) {}

  const uint64_t k;
  std::set<Reader*> readers;
  std::vector<std::shared_ptr<const Kept>> kept;  // by chunk; null for those that are not copied
};

Snapshots::Reader::Reader(Snapshots* owner, std::function<void()> wake)
    : owner_(owner),
      wake_(std::move(wake)),
      states_(owner->options_.store->chunks().size(), State::kNotReady),
      left_(states_.size()) {}

Snapshots::Reader::~Reader() { owner_->Unregister(*this); }

void Snapshots::Reader::SetReady(int index) {
  if (states_[index] != State::kNotReady) return;
  states_[index] = State::kReady;
  ready_.push_back(index);
  Wake();
}

void Snapshots::Reader::SetTaken(int index) {
  states_[index] = State::kTaken;
  --left_;
  DropIfTaken(*snapshot_, index);
}

void Snapshots::Reader::Wake() {
  if (std::exchange(waits_, false)) wake_();
}

absl::StatusOr<Snapshots::Reader::Progress> Snapshots::Reader::Take(
    absl::FunctionRef<void(const Taken&)> use) {
  for (bool is_over = false;;) {
    int index = -1;
    {
      absl::MutexLock lock(&owner_->mutex_);
      if (!failure_.ok()) return failure_;
      if (left_ == 0) return Progress::kAll;
      if (!ready_.empty()) {
        index = ready_.front();
        ready_.pop_front();
      } else if (is_over) {
        return absl::OutOfRangeError(absl::StrCat("the run was over before iteration ",
                                                  snapshot_->k, " at shard ",
                                                  owner_->options_.slot));
      } else {
        waits_ = true;
      }
    }
    if (index < 0) {
      // What the last updates made ready, before the run was over, is taken first.
      is_over = owner_->options_.is_over();
      if (!is_over) return Progress::kNoneYet;
      continue;
    }
    StoredChunk& chunk = owner_->options_.store->chunks()[index];
    absl::ReaderMutexLock chunk_lock(&chunk.mutex);  // so that no thread copies or changes it
    std::shared_ptr<const Kept> kept;
    {
      absl::MutexLock lock(&owner_->mutex_);
      if (!failure_.ok()) return failure_;
      kept = snapshot_->kept[index];
      SetTaken(index);
    }
    if (kept == nullptr) {
      use({chunk.info(), chunk.clock(), chunk.parameters(), nullptr});
    } else {
      use({chunk.info(), kept->clock, kept->memory.span().first(chunk.info().size), kept});
    }
    return Progress::kTaken;
  }
}

Snapshots::Snapshots(Options options)
    : options_(std::move(options)),
      copy_memory_(std::make_shared<CopyMemory>(MaxBytes(*options_.config, *options_.store))) {}

Snapshots::~Snapshots() = default;

bool Snapshots::IsSync() const { return options_.config->is_synchronous(); }

uint64_t Snapshots::PositionOf(const StoredChunk& chunk) const {
  return IsSync() ? chunk.clock().iteration : chunk.version();
}

absl::StatusOr<std::unique_ptr<Snapshots::Reader>> Snapshots::Open(uint64_t k,
                                                                   std::function<void()> wake) {
  if (options_.config->IsInitial(k)) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are no parameters at exchange ", k,
                     " of a run with model.from_workers, allowed: from 1 on"));
  }
  std::unique_ptr<Reader> reader(new Reader(this, std::move(wake)));
  {
    absl::MutexLock lock(&mutex_);
    Register(*reader, k);
    RETURN_IF_ERROR(ended_);
  }
  RETURN_IF_ERROR(LookAtChunks(*reader));
  return reader;
}

void Snapshots::Register(Reader& reader, uint64_t k) {
  auto snapshot = std::find_if(snapshots_.begin(), snapshots_.end(),
                               [k](const Snapshot& each) { return each.k == k; });
  if (snapshot == snapshots_.end()) {
    snapshot = snapshots_.emplace(snapshots_.end(), k, options_.store->chunks().size());
  }
  snapshot->readers.insert(&reader);
  reader.snapshot_ = &*snapshot;
  is_active_ = true;
}

void Snapshots::Unregister(Reader& reader) {
  absl::MutexLock lock(&mutex_);
  Snapshot& snapshot = *reader.snapshot_;
  snapshot.readers.erase(&reader);
  for (size_t index = 0; index < snapshot.kept.size(); ++index) {
    DropIfTaken(snapshot, static_cast<int>(index));
  }
  if (snapshot.readers.empty()) {
    snapshots_.remove_if([&snapshot](const Snapshot& each) { return &each == &snapshot; });
  }
  is_active_ = !snapshots_.empty();
}

absl::Status Snapshots::LookAtChunks(Reader& reader) {
  int index = 0;
  for (StoredChunk& chunk : options_.store->chunks()) {
    absl::ReaderMutexLock chunk_lock(&chunk.mutex);
    const uint64_t position = PositionOf(chunk);
    absl::MutexLock lock(&mutex_);
    reader.owner_->mutex_.AssertHeld();  // the same mutex, as clang's analysis does not see
    const uint64_t k = reader.snapshot_->k;
    if (IsReadyAt(k, position) || reader.snapshot_->kept[index] != nullptr) {
      reader.SetReady(index);
    } else if (position > k) {
      return absl::AbortedError(absl::StrCat("chunk ", chunk.info().id, " of shard ", options_.slot,
                                             " has passed iteration ", k, ": it is at ", position));
    }
    ++index;
  }
  return absl::OkStatus();
}

bool Snapshots::IsNeeded(const Snapshot& snapshot, int index) {
  return std::any_of(snapshot.readers.begin(), snapshot.readers.end(), [index](Reader* reader) {
    reader->owner_->mutex_.AssertHeld();
    return reader->states_[index] != Reader::State::kTaken;
  });
}

void Snapshots::DropIfTaken(Snapshot& snapshot, int index) {
  if (snapshot.kept[index] != nullptr && !IsNeeded(snapshot, index)) snapshot.kept[index].reset();
}

bool Snapshots::BeforeChange(int index, const StoredChunk& chunk) {
  if (is_active_.load(std::memory_order_relaxed)) Keep(index, chunk);
  return true;
}

void Snapshots::Keep(int index, const StoredChunk& chunk) {
  const uint64_t k = chunk.clock().iteration;
  const auto is_meant = [&](const Snapshot& each) { return each.k == k && IsNeeded(each, index); };
  {
    absl::MutexLock lock(&mutex_);
    if (std::none_of(snapshots_.begin(), snapshots_.end(), is_meant)) return;
  }
  // Copied without this lock, so that chunks are copied side by side. Meanwhile readers may come
  // and go, but none of them takes this chunk, whose lock is held.
  std::shared_ptr<Kept> kept;
  if (auto memory = copy_memory_->Take(chunk.info().size); memory.has_value()) {
    kept = std::make_shared<Kept>(copy_memory_, *std::move(memory));
    kept->clock = chunk.clock();
    std::copy(chunk.parameters().begin(), chunk.parameters().end(), kept->memory.data());
  }
  absl::MutexLock lock(&mutex_);
  const auto snapshot = std::find_if(snapshots_.begin(), snapshots_.end(), is_meant);
  if (snapshot == snapshots_.end()) return;
  snapshot->kept[index] = kept;
  for (Reader* reader : snapshot->readers) {
    reader->owner_->mutex_.AssertHeld();
    if (kept != nullptr || reader->states_[index] == Reader::State::kTaken) continue;
    reader->failure_ = absl::ResourceExhaustedError(
        absl::StrCat("the copies of chunks for the snapshots at shard ", options_.slot,
                     " would take more than limits.snapshot_bytes (", copy_memory_->max_bytes(),
                     ") because they are read too slowly; read again, or raise it"));
    reader->Wake();
  }
}

std::optional<uint64_t> Snapshots::Changed(int index, const StoredChunk& chunk,
                                           const ChunkChange& change) {
  if (!is_active_.load(std::memory_order_relaxed)) return std::nullopt;
  const uint64_t position = PositionOf(chunk);
  absl::MutexLock lock(&mutex_);
  for (Snapshot& snapshot : snapshots_) {
    if (!IsReadyAt(snapshot.k, position)) continue;
    for (Reader* reader : snapshot.readers) {
      reader->owner_->mutex_.AssertHeld();
      reader->SetReady(index);
    }
  }
  return std::nullopt;
}

void Snapshots::FillProgress(ShardStats::Progress* progress) const {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  const bool is_over = options_.is_over();  // asked first: what follows is then where it has ended
  uint64_t least = kNone;
  uint64_t largest = 0;
  uint64_t least_exchange = kNone;
  uint64_t largest_exchange = 0;
  for (StoredChunk& chunk : options_.store->chunks()) {
    absl::ReaderMutexLock lock(&chunk.mutex);
    const uint64_t exchange = PositionOf(chunk);
    const uint64_t trained = exchange - std::min(exchange, chunk.clock().assignments);
    least = std::min(least, trained);
    largest = std::max(largest, trained);
    least_exchange = std::min(least_exchange, exchange);
    largest_exchange = std::max(largest_exchange, exchange);
  }
  progress->set_least(least == kNone ? 0 : least);
  progress->set_largest(largest);
  progress->set_least_exchange(least_exchange == kNone ? 0 : least_exchange);
  progress->set_largest_exchange(largest_exchange);
  progress->set_is_over(is_over);
}

void Snapshots::WakeAll() {
  absl::MutexLock lock(&mutex_);
  for (Snapshot& snapshot : snapshots_) {
    for (Reader* reader : snapshot.readers) {
      reader->owner_->mutex_.AssertHeld();
      reader->Wake();
    }
  }
}

void Snapshots::End(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return;
  ended_ = reason;
  if (KindOf(reason) == ErrorDetail::RUN_FAILED) {
    ended_ = WithKind(ErrorDetail::RUN_FAILED,
                      absl::FailedPreconditionError(absl::StrCat(
                          "the run has failed, and its chunks may be at different iterations: ",
                          reason.message())));
  }
  for (Snapshot& snapshot : snapshots_) {
    for (Reader* reader : snapshot.readers) {
      reader->owner_->mutex_.AssertHeld();
      if (reader->failure_.ok()) reader->failure_ = ended_;
      reader->Wake();
    }
  }
}

void Snapshots::ReleaseMemory() {
  {
    absl::MutexLock lock(&mutex_);
    if (!snapshots_.empty()) return;
  }
  copy_memory_->Release();
}

}  // namespace evenshard
