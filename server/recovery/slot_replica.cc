#include "server/recovery/slot_replica.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/config/optimizer_arrays.h"
#include "common/wire/encoding.h"
#include "server/agreement/agreed.h"

namespace evenshard {
namespace {

// Whether the chunk, which the same primary or its predecessor has filled, has the change or the
// state already. A state comes again, late, when a stream is opened anew.
bool Has(const ChunkClock& clock, const ReplicaChunk& header) {
  if (header.is_state()) {
    if (clock.next_iteration.empty()) return header.iteration() <= clock.iteration;
    return header.version() <= clock.version &&
           std::equal(header.next_iteration().begin(), header.next_iteration().end(),
                      clock.next_iteration.begin(), clock.next_iteration.end(),
                      [](uint64_t theirs, uint64_t own) { return theirs <= own; });
  }
  if (header.has_worker()) return header.iteration() <= clock.next_iteration[header.worker()];
  return header.iteration() <= clock.iteration;
}

// The norms that come with a message that has data.
absl::StatusOr<std::vector<double>> NormsOf(const ReplicaChunk& header, int expected) {
  if (header.norms_size() == expected && absl::c_all_of(header.norms(), IsNorm)) {
    return std::vector<double>(header.norms().begin(), header.norms().end());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a message about chunk ", header.chunk(), " has the norms ",
      absl::StrJoin(header.norms(), ", "), "; allowed: ", expected, " finite ones from 0"));
}

// Whether the slots can have agreed on what comes with a message. Nothing is agreed on ahead of any
// chunk, and a replica that takes the slot over asks for nothing that it knows.
absl::Status CheckAgreed(const ReplicaChunk& header, int workers) {
  if (header.has_squared_norm() && !IsNorm(header.squared_norm())) {
    return absl::InvalidArgumentError(absl::StrCat("a message about chunk ", header.chunk(),
                                                   " has the squared norm ", header.squared_norm(),
                                                   ", allowed: a finite one from 0"));
  }
  const QuorumSet& set = header.quorum();
  if (!header.has_quorum() || (IsSet(set, workers) && set.iteration() <= header.iteration())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a message about chunk ", header.chunk(), " at iteration ", header.iteration(),
                   " says whose gradients have counted up to iteration ", set.iteration(),
                   ", allowed: of ", workers, " workers, up to iteration ", header.iteration()));
}

}  // namespace

SlotReplica::SlotReplica(const PlannedConfig* config, int slot,
                         std::shared_ptr<ParameterStore> store, bool is_complete)
    : config_(*config), slot_(slot), store_(std::move(store)), places_(store_->chunks().size()) {
  for (Place& place : places_) place.is_filled = is_complete;
  if (!is_complete) store_->ForgetAgreed();
  for (StoredChunk& chunk : store_->chunks()) {
    absl::MutexLock lock(&chunk.mutex);
    ChunkClock& clock = chunk.mutable_clock();
    if (!config_.is_synchronous()) clock.next_iteration.resize(config_.workers());
    if (config_.proto().update().max_norm() > 0) clock.norms.resize(config_.workers());
  }
}

void SlotReplica::SetView(uint64_t view, bool begins_anew) {
  if (begins_anew) store_->ForgetAgreed();
  for (size_t i = 0; i < places_.size(); ++i) {
    absl::MutexLock lock(&store_->chunks()[i].mutex);
    places_[i].view = view;
    if (begins_anew) places_[i].is_filled = false;
  }
}

void SlotReplica::Adopt(const View& view) {
  const SlotView& slot = view.slot(slot_);
  bool is_other;
  {
    absl::MutexLock lock(&mutex_);
    is_other =
        std::exchange(primary_, slot.primary().incarnation()) != slot.primary().incarnation();
  }
  SetView(view.number(), is_other && !slot.replica_is_complete());
}

std::shared_ptr<ParameterStore> SlotReplica::Retire() {
  SetView(0, /*begins_anew=*/false);
  return store_;
}

absl::Status SlotReplica::CheckSender(uint64_t view, uint64_t primary_incarnation,
                                      uint64_t own_view) const {
  if (view > own_view && own_view > 0) {
    return absl::UnavailableError(absl::StrCat("the primary of slot ", slot_, " follows view ",
                                               view, ", its replica view ", own_view));
  }
  absl::MutexLock lock(&mutex_);
  if (view == own_view && primary_incarnation == primary_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the sender of view ", view, " is not the primary of slot ", slot_, " in view ", own_view));
}

absl::Status SlotReplica::CheckChange(const Chunk& chunk, const ReplicaChunk& header,
                                      const Segments& data) const {
  const bool is_async = !config_.is_synchronous();
  if (header.has_worker() != is_async ||
      header.worker() >= static_cast<uint32_t>(config_.workers())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a change of chunk ", chunk.id,
                     is_async ? " must name" : " belongs to no single worker, but names",
                     " a worker of the config: ", header.worker()));
  }
  if (!Encoding_IsValid(header.encoding())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a change of chunk ", chunk.id, " is ", EncodingName(header.encoding())));
  }
  const size_t bytes = SegmentsSize(data);
  const size_t expected = EncodedBytes(header.encoding(), chunk.size);
  const int arrays = 1 + StateArrays(config_.proto());
  if (header.assigned() >= static_cast<uint32_t>(arrays)) {
    return absl::InvalidArgumentError(absl::StrCat("a change of chunk ", chunk.id,
                                                   " assigns array ", header.assigned(),
                                                   "; it has arrays 0 to ", arrays - 1));
  }
  for (const uint32_t rank : header.sent_to()) {
    if (rank < static_cast<uint32_t>(SentArrays(config_.proto()))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a change of chunk ", chunk.id, " follows what worker ", rank,
        " was sent; what is sent is kept of ", SentArrays(config_.proto()), " workers"));
  }
  if (bytes != 0 && bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat("a change of chunk ", chunk.id, " has ", bytes,
                                                   " bytes instead of ", expected));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReplicaReceipt> SlotReplica::Take(uint64_t view, uint64_t primary_incarnation,
                                                 const ReplicaMessage& message) {
  // Sending it again would not help.
  const auto fatal = [](absl::Status status) {
    return WithKind(ErrorDetail::RUN_FAILED, std::move(status));
  };
  const ReplicaChunk& header = message.header;
  const int index = store_->IndexOf(header.chunk());
  if (index < 0) {
    return fatal(
        absl::InvalidArgumentError(absl::StrCat("slot ", slot_, " has no chunk ", header.chunk())));
  }
  StoredChunk& chunk = store_->chunks()[index];
  const Segments& data = message.data;
  const bool has_norms = !data.empty() && config_.proto().update().max_norm() > 0;
  absl::StatusOr<std::vector<double>> norms = NormsOf(header, has_norms ? config_.workers() : 0);
  RETURN_IF_ERROR(fatal(norms.status()));
  RETURN_IF_ERROR(fatal(CheckAgreed(header, config_.workers())));
  if (!header.is_state()) {
    RETURN_IF_ERROR(fatal(CheckChange(chunk.info(), header, data)));
  }
  {
    absl::MutexLock lock(&chunk.mutex);
    Place& place = places_[index];
    RETURN_IF_ERROR(CheckSender(view, primary_incarnation, place.view));
    RETURN_IF_ERROR(fatal(header.is_state()
                              ? TakeState(chunk, place, header, data, *std::move(norms))
                              : TakeChange(chunk, place, header, data, *std::move(norms))));
    if (header.has_squared_norm() && header.iteration() > 0) {
      store_->Follow(
          AgreedNorm{.iteration = header.iteration() - 1, .squared = header.squared_norm()});
    }
    if (header.has_quorum()) {
      store_->Follow(AgreedSet{.iteration = header.quorum().iteration(),
                               .counted_before = {header.quorum().counted_before().begin(),
                                                  header.quorum().counted_before().end()}});
    }
  }
  ReplicaReceipt receipt;
  receipt.set_chunk(header.chunk());
  receipt.set_version(header.version());
  receipt.set_iteration(header.iteration());
  return receipt;
}

absl::Status SlotReplica::TakeState(StoredChunk& chunk, Place& place, const ReplicaChunk& header,
                                    const Segments& data, std::vector<double> norms) {
  if (place.is_filled && Has(chunk.clock(), header)) return absl::OkStatus();
  ChunkClock clock{.version = header.version(),
                   .iteration = header.iteration(),
                   .all_absent = header.all_absent(),
                   .assignments = header.assignments(),
                   .recent_assignments = header.recent_assignments(),
                   .former_assignments = header.former_assignments(),
                   .steps = header.steps(),
                   .norms = std::move(norms)};
  clock.next_iteration.assign(header.next_iteration().begin(), header.next_iteration().end());
  if (clock.next_iteration.size() != chunk.clock().next_iteration.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the state of chunk ", chunk.info().id,
                                                   " is of ", clock.next_iteration.size(),
                                                   " workers"));
  }
  std::vector<uint64_t> sent_versions;
  for (const uint64_t next : header.sent_version()) sent_versions.push_back(next - 1);
  RETURN_IF_ERROR(chunk.SetState(clock, sent_versions, data));
  place.is_filled = true;
  return absl::OkStatus();
}

absl::Status SlotReplica::TakeChange(StoredChunk& chunk, const Place& place,
                                     const ReplicaChunk& header, const Segments& data,
                                     std::vector<double> norms) {
  ChunkClock& clock = chunk.mutable_clock();
  const bool has_data = !data.empty();
  // An array of the optimizer's state is none that the version counts.
  const uint64_t updates = has_data && header.assigned() == 0 ? 1 : 0;
  if (place.is_filled && Has(clock, header)) return absl::OkStatus();
  const bool is_next = clock.version + updates == header.version() &&
                       (header.has_worker() || clock.iteration + 1 == header.iteration());
  if (!place.is_filled || !is_next) {
    return absl::DataLossError(absl::StrCat(
        "the replica of slot ", slot_, place.is_filled ? " has" : " was not filled with", " chunk ",
        chunk.info().id, " of version ", clock.version, " and iteration ", clock.iteration,
        ", and the change leads to version ", header.version(), " and iteration ",
        header.iteration()));
  }
  if (has_data) {
    UpdateRate rate{.iteration = static_cast<int64_t>(header.rate_iteration()),
                    .worker = header.worker(),
                    .base_version = header.base_version(),
                    .sent_to = {header.sent_to().begin(), header.sent_to().end()}};
    Hyperparameters& pushed = rate.pushed;
    if (header.has_learning_rate()) pushed.learning_rate = header.learning_rate();
    if (header.has_momentum()) pushed.momentum = header.momentum();
    if (header.has_beta2()) pushed.beta2 = header.beta2();
    if (header.has_weight_decay()) pushed.weight_decay = header.weight_decay();
    if (header.has_epsilon()) pushed.epsilon = header.epsilon();
    if (header.has_assigned()) {
      rate.assigned = {.array = header.assigned(), .steps = header.steps()};
    }
    RETURN_IF_ERROR(chunk.ApplyGradient(data, header.encoding(), header.scale(), rate));
    clock.norms = std::move(norms);
  }
  (header.has_worker() ? clock.next_iteration[header.worker()] : clock.iteration) =
      header.iteration();
  clock.all_absent = header.all_absent();
  // Under ASYNC only the values count, which one worker gives.
  if (!header.has_worker() || (header.has_assigned() && has_data)) {
    clock.CountExchange(header.has_assigned());
  }
  return absl::OkStatus();
}

}  // namespace evenshard
