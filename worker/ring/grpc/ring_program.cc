// What the workers of a ring tell each other beside iterations, and the rest of what programs that
// bring the model need, for RingExchange.
//
// A note, with which a worker tells all others something before an iteration or in it:
//   1. Exchanged keeps this worker's own note, and passes it on to the successor by the call Tell.
//   2. Each worker keeps it, and passes it on, up to the one before its origin.
//   3. Each worker waits until it has one note of every worker with the same number, and comes to
//      the same result from them.

#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/doubling_notice.h"
#include "common/base/error_kind.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/wire/mean_limits.h"
#include "grpcpp/client_context.h"
#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {
namespace {

// How long other news may take to say why a note was not told.
constexpr absl::Duration kUntoldTime = absl::Seconds(5);

}  // namespace

AssignmentCounts RingExchange::assignments() const {
  const uint64_t all = round_->assignments();
  // A program can assign values before its first iteration too.
  return {.all = all, .recent = all == round_->iteration() ? all : 0};
}

absl::Status RingExchange::Initialize(absl::Span<const float> initial,
                                      absl::Span<float> parameters) {
  RETURN_IF_ERROR(Begin(ExchangeKind{.assigned = 0}, initial, parameters));
  for (size_t i = 0; i < config_.model().tensors().size(); ++i) {
    const int tensor = static_cast<int>(i);
    RETURN_IF_ERROR(PushTensors({&tensor, 1}, Contribution::kGradient));
  }
  return AwaitAll();
}

absl::Status RingExchange::PullState(
    int array, const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take) {
  return absl::UnimplementedError(
      "in a ring each worker has a part of the optimizer's state, and nobody all of it; allowed: "
      "topology PARAMETER_SERVER, or an optimizer of the program (kind MEAN)");
}

absl::StatusOr<std::vector<double>> RingExchange::Mean(const std::string& place,
                                                       const std::vector<double>& value) {
  RETURN_IF_ERROR(CheckMean(value.size(), place.size()));
  RingNote note;
  note.set_place(place);
  note.mutable_value()->Add(value.begin(), value.end());
  ASSIGN_OR_RETURN(const std::vector<RingNote> notes, Exchanged(std::move(note), Place::kBetween));
  absl::StatusOr<std::vector<double>> mean = MeanOf(notes);
  if (!mean.ok()) Fail(mean.status());
  return mean;
}

absl::Status RingExchange::KeepState(StatesByName states) {
  RingNote note;
  for (const auto& [name, text] : states) {
    RingNote::State& state = *note.add_state();
    state.set_name(name);
    state.set_fingerprint(Fnv1a64(text));
  }
  ASSIGN_OR_RETURN(const std::vector<RingNote> notes,
                   Exchanged(std::move(note), Place::kBeginning));
  const absl::Status same = CheckSameStates(notes);
  if (!same.ok()) Fail(same);
  return same;
}

absl::StatusOr<StatesByName> RingExchange::TakeState() {
  return absl::NotFoundError("no worker joins a ring that is under way");
}

absl::StatusOr<uint32_t> RingExchange::Give(RingNote note) {
  RETURN_IF_ERROR(round_->failure());
  const uint64_t iteration = round_->iteration();
  if (notes_iteration_ != iteration) notes_number_ = 0;
  notes_iteration_ = iteration;
  const uint32_t number = notes_number_++;
  note.set_origin(options_.rank);
  note.set_iteration(iteration);
  note.set_number(number);
  RETURN_IF_ERROR(notes_.Take(note));
  Pass(std::move(note));
  return number;
}

absl::Status RingExchange::AwaitRing(absl::Duration patience) {
  std::vector<RingNote> held;
  {
    absl::MutexLock lock(&mutex_);
    passes_notes_ = true;
    held.swap(held_notes_);
  }
  for (RingNote& note : held) Pass(std::move(note));
  ASSIGN_OR_RETURN(const uint32_t number, Give(RingNote()));
  const absl::Time deadline = options_.clock->Now() + patience;
  const uint64_t iteration = round_->iteration();
  const auto check = [&]() -> absl::Status {
    if (options_.stop.stop_requested()) return absl::CancelledError("told to stop");
    RETURN_IF_ERROR(round_->failure());
    if (options_.clock->Now() < deadline) return absl::OkStatus();
    const std::vector<int> missing = notes_.Missing(iteration, number);
    if (missing.empty()) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat(NameOf(missing.front()), " has not connected to both its neighbours in ",
                     absl::FormatDuration(patience), " (limits.startup_seconds)"));
  };
  return notes_.Await(iteration, number, check).status();
}

absl::StatusOr<std::vector<RingNote>> RingExchange::Exchanged(RingNote note, Place place) {
  ASSIGN_OR_RETURN(const uint32_t number, Give(std::move(note)));
  const uint64_t iteration = round_->iteration();
  const absl::Time start = options_.clock->Now();
  DoublingNotice<absl::Duration> news{StallWatch::kNewsAfter};
  Stall stall;
  stall.iteration = round_->trained();
  absl::StatusOr<std::vector<RingNote>> notes = notes_.Await(iteration, number, [&] {
    if (options_.while_waiting != nullptr) options_.while_waiting();
    const bool has_finished = round_->has_predecessor_finished();
    // One that has left has told everything before.
    const std::vector<int> missing = notes_.Missing(iteration, number);
    if (has_finished && absl::c_linear_search(missing, predecessor_)) {
      Fail(place == Place::kBeginning
               ? round_->PredecessorEnded()
               : absl::FailedPreconditionError(
                     absl::StrCat(NameOf(predecessor_), " has finished, and worker ", options_.rank,
                                  " waits for it; allowed: the same calls in all workers")));
    }
    if (place == Place::kBeginning && !missing.empty()) {
      stall.lasted = options_.clock->Now() - start;
      stall.missing = absl::StrCat(NameOf(missing.front()), " has not begun it");
      stall.is_news = news.Grew(stall.lasted);
      CheckStall(stall);
    }
    return round_->failure();
  });
  if (notes.ok() && news.Over()) {
    stall.missing.clear();
    options_.on_stall(stall);
  }
  absl::MutexLock lock(&mutex_);
  stall_.reset();
  return notes;
}

void RingExchange::CheckStall(const Stall& stall) {
  if (stall.lasted >= round_->limit()) {
    return Fail(absl::DeadlineExceededError(
        absl::StrCat("iteration ", stall.iteration, ": ", stall.missing, " for ",
                     absl::FormatDuration(round_->limit()),
                     " (limits.exchange_seconds) (noticed by worker ", options_.rank, ")")));
  }
  {
    absl::MutexLock lock(&mutex_);
    stall_ = stall;
  }
  if (stall.is_news) options_.on_stall(stall);
}

absl::Status RingExchange::TakeNote(const RingNote& note) {
  // The training thread may leave as soon as it has the note, and the successor needs it too.
  telling_.Add();
  const absl::Cleanup told = [this] { telling_.Remove(); };
  absl::Status taken = notes_.Take(note);
  if (taken.ok()) taken = CheckOthers();
  if (!taken.ok()) {
    Fail(taken);
  } else if (note.origin() != static_cast<uint32_t>(successor_) && round_->failure().ok()) {
    Pass(note);
  }
  return taken;
}

void RingExchange::Pass(RingNote note) {
  {
    absl::MutexLock lock(&mutex_);
    if (!passes_notes_) return held_notes_.push_back(std::move(note));
  }
  struct Call {
    grpc::ClientContext context;
    RingNote request;
    RingNoteResponse response;
  };
  auto call = std::make_shared<Call>();
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + round_->limit()));
  call->request = std::move(note);
  call->request.set_worker(options_.rank);
  call->request.set_incarnation(incarnation_);
  telling_.Add();
  stub_->async()->Tell(&call->context, &call->request, &call->response,
                       [this, call](const grpc::Status& status) mutable {
                         call.reset();  // and its channel, before the exchange may end
                         if (!status.ok()) NotTold(FromGrpc(status));
                         telling_.Remove();
                       });
}

void RingExchange::NotTold(const absl::Status& why) {
  if (KindOf(why) == ErrorDetail::RUN_FAILED) return Fail(why);
  absl::MutexLock lock(&mutex_);
  if (!untold_.has_value()) untold_ = {.since = absl::Now(), .why = std::string(why.message())};
}

void RingExchange::CheckTold() {
  std::string why;
  {
    absl::MutexLock lock(&mutex_);
    if (!untold_.has_value() || absl::Now() - untold_->since < kUntoldTime) return;
    why = untold_->why;
  }
  if (!successor_finished_) return Lost(successor_, why);
  Fail(absl::FailedPreconditionError(
      absl::StrCat(NameOf(successor_), " has finished, and worker ", options_.rank,
                   " has something to tell it; allowed: the same calls in all workers")));
}

absl::Status RingExchange::CheckOthers() {
  absl::Status others = round_->Forsaken();
  // One that has begun an iteration can still come to where another is, unless it waits for its
  // end.
  const std::optional<uint64_t> awaited = round_->AwaitedIteration();
  const int giver = awaited.has_value() ? notes_.GivenFor(*awaited) : -1;
  if (others.ok() && giver >= 0) {
    others = absl::FailedPreconditionError(
        absl::StrCat("worker ", giver, " is in a mean() or barrier(), and worker ", options_.rank,
                     " has begun iteration ", round_->trained(),
                     "; allowed: the same calls in the same order in all workers"));
  }
  if (!others.ok()) Fail(others);
  return others;
}

}  // namespace evenshard
