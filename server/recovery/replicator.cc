// A change, from the primary to its replica and back:
//   1. The update policy has changed a chunk, under the chunk's lock. Changed numbers the change
//      and sends it. Until it is confirmed, it stays in the memory where the primary has it.
//   2. The replica takes it (slot_replica.cc) and sends a receipt. Confirmed makes the policy
//      release the replies that waited for it.
// A chunk that the replica does not have is sent as a whole first (FillMore). Its later changes
// follow on the same stream; earlier ones need no receipt.

#include "server/recovery/replicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/error_kind.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

void SetNorms(const ChunkClock& clock, ReplicaMessage* message) {
  if (message->data.empty()) return;
  message->header.mutable_norms()->Add(clock.norms.begin(), clock.norms.end());
}

}  // namespace

class Replicator::Lane final : private ReplicaStream::Receiver {
 public:
  Lane(Replicator* replicator, int number, uint64_t link, uint64_t view, const ProcessId& primary,
       const ProcessId& copy)
      : link_(link),
        replicator_(replicator),
        stream_(replicator->options_.transport->Open(replicator->options_.slot, number, view,
                                                     primary, copy, this)) {}

  // `change` is 0 for the state of a chunk.
  void Send(int index, uint64_t change, const ReplicaMessage& message) {
    sent_.push_back({index, change});
    stream_->Send(message);
  }

  const uint64_t link_;
  // What is not confirmed, oldest first. Guarded by the replicator's lock.
  std::deque<Due> sent_;

 private:
  void Confirmed(const ReplicaReceipt&) override { replicator_->Confirmed(this); }
  void Ended(const absl::Status& status) override { replicator_->Ended(link_, status); }

  Replicator* const replicator_;
  const std::unique_ptr<ReplicaStream> stream_;
};

Replicator::Replicator(const Options& options)
    : options_(options), chunks_(options.store->chunks().size()) {}

Replicator::~Replicator() { Stop(); }

void Replicator::Stop() {
  Lanes old;  // destroyed without the lock, as what nobody will confirm is
  std::vector<std::deque<ReplicaMessage>> unconfirmed;
  absl::MutexLock lock(&mutex_);
  SetCopy(std::nullopt);
  old = Unlink();
  // What a message owns may be the worker's stream, which owns the slot's primary and this.
  for (ChunkState& chunk : chunks_) {
    unconfirmed.push_back(std::exchange(chunk.unconfirmed, {}));
  }
  unconfirmed_ = 0;
}

void Replicator::SetCopy(std::optional<ProcessId> copy) {
  if (copy_.has_value() && (!copy.has_value() || copy->incarnation() != copy_->incarnation())) {
    options_.transport->Disconnect(options_.slot);
  }
  copy_ = std::move(copy);
}

void Replicator::Adopt(const View& view) {
  const SlotView& slot = view.slot(options_.slot);
  std::vector<Due> due;
  Lanes old;
  {
    absl::MutexLock lock(&mutex_);
    // A replica that is not complete may have begun anew in a view that this process has not seen.
    // It is filled again, and drops what it has.
    const bool same = copy_.has_value() && slot.has_replica() &&
                      copy_->incarnation() == slot.replica().incarnation() &&
                      (slot.replica_is_complete() || view.number() == view_ + 1);
    view_ = view.number();
    primary_ = slot.primary();
    SetCopy(slot.has_replica() ? std::optional(slot.replica()) : std::nullopt);
    if (!same) {
      const bool complete = copy_.has_value() && slot.replica_is_complete();
      for (size_t index = 0; index < chunks_.size(); ++index) {
        Forget(static_cast<int>(index), due);
        chunks_[index].fill = complete ? Fill::kConfirmed : Fill::kNone;
      }
      filled_ = complete ? chunks_.size() : 0;
      heard_ = options_.clock->Now();
    }
    pause_ = kShortestPause;
    old = Relink(due);
  }
  old.clear();
  Confirm(due);
  FillMore();
  options_.on_progress();
}

Replicator::Lanes Replicator::Unlink() {
  ++link_;
  broken_since_.reset();
  return std::exchange(lanes_, {});
}

Replicator::Lanes Replicator::Relink(std::vector<Due>& due) {
  Lanes old = Unlink();
  filling_ = 0;
  next_fill_ = 0;
  if (!copy_.has_value()) return old;
  for (int i = 0; i < options_.streams; ++i) {
    lanes_.push_back(std::make_unique<Lane>(this, i, link_, view_, primary_, *copy_));
  }
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const int index = static_cast<int>(i);
    ChunkState& chunk = chunks_[index];
    if (chunk.fill == Fill::kSent) {
      Forget(index, due);
      chunk.fill = Fill::kNone;
    }
    uint64_t change = chunk.changes - chunk.unconfirmed.size();
    for (ReplicaMessage& message : chunk.unconfirmed) {
      message.header.set_view(view_);
      Send(index, ++change, message);
    }
  }
  return old;
}

void Replicator::Forget(int index, std::vector<Due>& due) {
  ChunkState& chunk = chunks_[index];
  if (chunk.unconfirmed.empty()) return;
  unconfirmed_ -= chunk.unconfirmed.size();
  chunk.unconfirmed.clear();
  due.push_back({index, chunk.changes});
}

void Replicator::Confirm(const std::vector<Due>& due) {
  for (const Due& change : due) options_.confirm(change.index, change.change);
}

std::optional<uint64_t> Replicator::Changed(int index, const StoredChunk& chunk,
                                            const ChunkChange& change) {
  absl::MutexLock lock(&mutex_);
  ChunkState& state = chunks_[index];
  if (!copy_.has_value() || state.fill == Fill::kNone) return std::nullopt;
  const ChunkClock& clock = chunk.clock();
  ReplicaMessage& message = state.unconfirmed.emplace_back();
  ReplicaChunk& header = message.header;
  header.set_view(view_);
  header.set_chunk(chunk.info().id);
  header.set_version(clock.version);
  if (clock.next_iteration.empty()) {
    header.set_iteration(clock.iteration);
    header.set_all_absent(clock.all_absent);
  } else {
    header.set_worker(change.workers[0]);
    header.set_iteration(clock.next_iteration[change.workers[0]]);
  }
  SetAgreed(clock, &header);
  header.set_encoding(change.encoding);
  header.set_scale(change.scale);
  header.set_rate_iteration(change.rate.iteration);
  const Hyperparameters& pushed = change.rate.pushed;
  if (pushed.learning_rate) header.set_learning_rate(*pushed.learning_rate);
  if (pushed.momentum) header.set_momentum(*pushed.momentum);
  if (pushed.beta2) header.set_beta2(*pushed.beta2);
  if (pushed.weight_decay) header.set_weight_decay(*pushed.weight_decay);
  if (pushed.epsilon) header.set_epsilon(*pushed.epsilon);
  if (change.rate.assigned.has_value()) {
    header.set_assigned(change.rate.assigned->array);
    header.set_steps(change.rate.assigned->steps);
  }
  if (chunk.sent().are_kept() && !change.gradient.empty()) {
    header.set_base_version(change.rate.base_version);
    header.mutable_sent_to()->Add(change.rate.sent_to.begin(), change.rate.sent_to.end());
  }
  message.data = change.gradient;
  // What a broken stream has of the message must not be freed either.
  message.owner = change.owner == nullptr ? options_.store : change.owner;
  SetNorms(clock, &message);
  if (unconfirmed_ == 0 && filled_ == chunks_.size()) heard_ = options_.clock->Now();
  ++unconfirmed_;
  ++state.changes;
  if (!broken_since_.has_value()) Send(index, state.changes, message);
  return state.changes;
}

void Replicator::Send(int index, uint64_t change, const ReplicaMessage& message) {
  lanes_[index % lanes_.size()]->Send(index, change, message);
}

void Replicator::Confirmed(Lane* lane) {
  Due due;
  bool idle;
  {
    absl::MutexLock lock(&mutex_);
    if (lane->link_ != link_ || lane->sent_.empty()) return;
    due = lane->sent_.front();
    lane->sent_.pop_front();
    heard_ = options_.clock->Now();
    pause_ = kShortestPause;
    ChunkState& chunk = chunks_[due.index];
    if (due.change == 0) {
      chunk.fill = Fill::kConfirmed;
      ++filled_;
      --filling_;
    } else {
      chunk.unconfirmed.pop_front();
      --unconfirmed_;
    }
    idle = unconfirmed_ == 0;
  }
  if (due.change > 0) {
    Confirm({due});
    if (idle) options_.on_progress();
  } else {
    FillMore();
    if (is_filled()) options_.on_progress();
  }
}

void Replicator::Ended(uint64_t link, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (link != link_ || broken_since_.has_value()) return;
    broken_since_ = options_.clock->Now();
    if (logged_ != status.message()) {
      logged_ = std::string(status.message());
      spdlog::info("slot {}: the stream to its replica ended: {}", options_.slot, logged_);
    }
  }
  if (KindOf(status) == ErrorDetail::RUN_FAILED) options_.on_failure(status);
}

void Replicator::Tick() {
  bool is_news;
  {
    absl::MutexLock lock(&mutex_);
    const bool was_unreachable = std::exchange(told_unreachable_, IsUnreachable());
    is_news = told_unreachable_ != was_unreachable;
  }
  if (is_news) options_.on_progress();
  std::vector<Due> due;
  Lanes old;
  {
    absl::MutexLock lock(&mutex_);
    if (!broken_since_.has_value() || options_.clock->Now() < *broken_since_ + pause_) return;
    pause_ = std::min(2 * pause_, kLongestPause);
    old = Relink(due);
  }
  old.clear();
  Confirm(due);
  FillMore();
}

void Replicator::FillMore() {
  while (true) {
    uint64_t link;
    int index;
    {
      absl::MutexLock lock(&mutex_);
      if (lanes_.empty() || broken_since_.has_value() || filling_ >= kFillAhead) return;
      while (next_fill_ < chunks_.size() && chunks_[next_fill_].fill != Fill::kNone) ++next_fill_;
      if (next_fill_ == chunks_.size()) return;
      index = static_cast<int>(next_fill_++);
      ++filling_;
      link = link_;
    }
    StoredChunk& chunk = options_.store->chunks()[index];
    absl::ReaderMutexLock chunk_lock(&chunk.mutex);
    ReplicaMessage message = StateOf(chunk);
    absl::MutexLock lock(&mutex_);
    if (link != link_) return;  // the new link has begun anew
    message.header.set_view(view_);
    chunks_[index].fill = Fill::kSent;
    Send(index, /*change=*/0, message);
  }
}

ReplicaMessage Replicator::StateOf(const StoredChunk& chunk) const {
  ReplicaMessage message;
  const ChunkClock& clock = chunk.clock();
  message.header.set_chunk(chunk.info().id);
  message.header.set_is_state(true);
  message.header.set_version(clock.version);
  message.header.set_iteration(clock.iteration);
  message.header.set_all_absent(clock.all_absent);
  SetAgreed(clock, &message.header);
  message.header.set_steps(clock.steps);
  message.header.set_assignments(clock.assignments);
  message.header.set_recent_assignments(clock.recent_assignments);
  message.header.set_former_assignments(clock.former_assignments);
  message.header.mutable_next_iteration()->Add(clock.next_iteration.begin(),
                                               clock.next_iteration.end());
  const size_t array_bytes = chunk.info().size * sizeof(float);
  const SentParameters& sent = chunk.sent();
  const size_t arrays = chunk.arrays() + sent.workers();
  auto bytes = std::make_shared<std::string>(arrays * array_bytes, '\0');
  char* end = bytes->data();
  const auto append = [&](absl::Span<const float> array) {
    std::memcpy(end, array.data(), array_bytes);
    end += array_bytes;
  };
  for (int i = 0; i < chunk.arrays(); ++i) append(chunk.array(i));
  for (size_t rank = 0; rank < sent.workers(); ++rank) {
    append(sent.copy(rank));
    message.header.add_sent_version(sent.versions()[rank] + 1);  // 0 for kNoVersion
  }
  message.data.emplace_back(bytes->data(), bytes->size());
  message.owner = std::move(bytes);
  SetNorms(clock, &message);
  return message;
}

void Replicator::SetAgreed(const ChunkClock& clock, ReplicaChunk* header) const {
  const std::optional<AgreedNorm> norm = options_.store->agreed_norm();
  if (norm.has_value() && norm->iteration + 1 == clock.iteration) {
    header->set_squared_norm(norm->squared);
  }
  // Also one that no chunk was updated by yet: what it says of earlier iterations must not be lost.
  if (const std::optional<AgreedSet> set = options_.store->agreed_set(); set.has_value()) {
    header->mutable_quorum()->set_iteration(set->iteration);
    header->mutable_quorum()->mutable_counted_before()->Add(set->counted_before.begin(),
                                                            set->counted_before.end());
  }
}

bool Replicator::is_filled() const {
  absl::MutexLock lock(&mutex_);
  return copy_.has_value() && filled_ == chunks_.size();
}

bool Replicator::is_idle() const {
  absl::MutexLock lock(&mutex_);
  return unconfirmed_ == 0 && filling_ == 0;
}

bool Replicator::IsConfirmed(int index) const {
  absl::MutexLock lock(&mutex_);
  return chunks_[index].unconfirmed.empty();
}

bool Replicator::IsUnreachable() const {
  return copy_.has_value() && (unconfirmed_ > 0 || filled_ < chunks_.size()) &&
         options_.clock->Now() >= heard_ + options_.patience;
}

bool Replicator::is_unreachable() const {
  absl::MutexLock lock(&mutex_);
  return IsUnreachable();
}

uint64_t Replicator::unconfirmed() const {
  absl::MutexLock lock(&mutex_);
  return unconfirmed_;
}

uint64_t Replicator::unfilled() const {
  absl::MutexLock lock(&mutex_);
  return copy_.has_value() ? chunks_.size() - filled_ : 0;
}

}  // namespace evenshard
