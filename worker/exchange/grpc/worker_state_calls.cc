#include "worker/exchange/grpc/worker_state_calls.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/core/worker_state/worker_state_arrival.h"
#include "worker/exchange/grpc/for_each_shard.h"

namespace evenshard {
namespace {

constexpr absl::Duration kOfferTimeout = absl::Seconds(1);
// How often a transfer looks whether it should end.
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(250);
// A transfer of which nothing has moved for so long is given up.
constexpr absl::Duration kPatience = absl::Seconds(30);

}  // namespace

absl::Status WorkerStateCalls::AtAllSlots(
    const std::atomic<int64_t>& moved, const std::function<absl::Status()>& check,
    const std::function<absl::Status(ShardControl&, int, const std::stop_token&)>& each) const {
  std::stop_source stop;
  absl::Mutex mutex;
  absl::Status first;
  const auto end = [&](const absl::Status& status) {
    if (status.ok()) return;
    absl::MutexLock lock(&mutex);
    first.Update(status);
    stop.request_stop();
  };
  const std::future<void> done = std::async(std::launch::async, [&] {
    ForEachShard(options_.config->shards(), [&](int slot) {
      const std::shared_ptr<ShardControl> control = options_.control(slot);
      end(control == nullptr
              ? absl::UnavailableError(absl::StrCat("it is not known where slot ", slot, " is"))
              : each(*control, slot, stop.get_token()));
      return absl::OkStatus();
    }).IgnoreError();
  });
  const Clock& clock = options_.calls->clock();
  int64_t seen = 0;
  absl::Time since = clock.Now();
  while (done.wait_for(absl::ToChronoMilliseconds(kCheckPeriod)) != std::future_status::ready) {
    end(check());
    if (std::exchange(seen, moved) != moved) since = clock.Now();
    if (clock.Now() - since < kPatience) continue;
    end(absl::UnavailableError(absl::StrCat("nothing of a worker's state has moved for ",
                                            absl::FormatDuration(kPatience))));
  }
  return first;
}

absl::Status WorkerStateCalls::Receive(uint64_t iteration, const WorkerState::Place& place) {
  const PersistentCalls& calls = *options_.calls;
  while (true) {
    const uint64_t ticket = NewIncarnation();
    RETURN_IF_ERROR(calls.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const AskWorkerStateResponse asked,
                       control.AskWorkerState(iteration, ticket));
      return asked.has_sender() || asked.is_broken();
    }));
    const absl::Status received = ReceiveOnce(iteration, ticket, place);
    if (received.ok()) {
      return calls.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
        RETURN_IF_ERROR(control.HasWorkerState(ticket));
        return true;
      });
    }
    if (!PersistentCalls::MayComeBack(received)) return received;
    spdlog::info("the state of another worker did not arrive, and is asked for again: {}",
                 std::string(received.message()));
  }
}

absl::Status WorkerStateCalls::ReceiveOnce(uint64_t iteration, uint64_t ticket,
                                           const WorkerState::Place& place) {
  WorkerStateArrival arrival(options_.config->shards(), place);
  // Keeps the request alive, and hears of the sender's refusal.
  const auto check = [&]() -> absl::Status {
    const std::shared_ptr<ShardControl> control = options_.calls->control();
    if (control == nullptr) return options_.calls->failure();
    const absl::StatusOr<AskWorkerStateResponse> asked = control->AskWorkerState(iteration, ticket);
    if (absl::IsFailedPrecondition(asked.status())) return asked.status();
    if (asked.ok() && asked->is_broken()) return absl::UnavailableError("the sender is gone");
    return options_.calls->failure();
  };
  return AtAllSlots(arrival.moved(), check,
                    [&](ShardControl& control, int number, const std::stop_token& stop) {
                      WorkerStateArrival::Slot slot(&arrival, number);
                      RETURN_IF_ERROR(control.ReceiveWorkerState(
                          ticket, [&](const auto& piece) { return slot.Take(piece, stop); }, stop));
                      return slot.CheckEnd();
                    });
}

bool WorkerStateCalls::Offer(uint64_t iteration, WorkerState::Make make,
                             absl::FunctionRef<void()> meanwhile) {
  const std::shared_ptr<ShardControl> control = options_.control(0);
  if (control == nullptr) return false;
  OfferWorkerStateRequest offer;
  offer.set_iteration(iteration);
  offer.set_generation(options_.calls->generation());
  const absl::StatusOr<OfferWorkerStateResponse> answer =
      control->OfferWorkerState(offer, kOfferTimeout);
  if (!answer.ok() || answer->ticket() == 0) return answer.ok() && answer->is_awaited();
  offer.set_ticket(answer->ticket());
  absl::StatusOr<WorkerState> state = make();
  if (state.ok() && state->text.size() > kMostStateTextBytes) {
    state =
        absl::InvalidArgumentError(absl::StrCat("the text of its state has ", state->text.size(),
                                                " bytes, allowed: up to ", kMostStateTextBytes));
  }
  const absl::Status sent =
      state.ok() ? Send(*control, answer->ticket(), *state, meanwhile) : state.status();
  if (sent.ok()) return true;
  spdlog::info("this worker's state did not reach another one: {}", std::string(sent.message()));
  if (!state.ok() && !absl::IsUnavailable(sent)) offer.set_refusal(std::string(sent.message()));
  // If this does not arrive, the other one gives up and asks again.
  control->OfferWorkerState(offer, kOfferTimeout).IgnoreError();
  return true;
}

absl::Status WorkerStateCalls::Send(ShardControl& slot_0, uint64_t ticket, const WorkerState& state,
                                    absl::FunctionRef<void()> meanwhile) {
  const std::vector<int64_t> ends = EndsOf(state.memory);
  const int64_t total = ends.empty() ? 0 : ends.back();
  const int64_t piece_bytes =
      std::min<int64_t>(kMostStatePieceBytes, options_.config->proto().limits().chunk_bytes());
  std::atomic<int64_t> moved = 0;  // messages
  const auto send = [&](ShardControl& control, int slot, const std::stop_token& stop) {
    bool has_begun = false;
    int64_t begin = piece_bytes * slot;
    size_t text_sent = slot == 0 ? 0 : state.text.size();
    const auto next = [&](WorkerStatePiece* piece) {
      ++moved;
      piece->Clear();
      if (!std::exchange(has_begun, true)) {
        piece->set_total_bytes(total);
        piece->set_piece_bytes(piece_bytes);
        piece->set_text_bytes(state.text.size());
      } else if (text_sent < state.text.size()) {
        piece->set_text(state.text.substr(text_sent, piece_bytes));
        text_sent += piece->text().size();
      } else if (begin < total) {
        const int64_t size = std::min(piece_bytes, total - begin);
        piece->mutable_data()->resize(size);
        ForEachPart(state.memory, ends, begin, size, [&](int64_t offset, absl::Span<char> from) {
          std::memcpy(piece->mutable_data()->data() + offset, from.data(), from.size());
        });
        begin += piece_bytes * options_.config->shards();
      } else {
        return false;
      }
      return true;
    };
    return control.SendWorkerState(ticket, next, stop);
  };
  OfferWorkerStateRequest sending;
  sending.set_ticket(ticket);
  sending.set_is_sending(true);
  sending.set_generation(options_.calls->generation());
  const auto check = [&]() -> absl::Status {
    meanwhile();
    const auto answer = slot_0.OfferWorkerState(sending, kOfferTimeout);
    if (answer.ok() && !answer->is_awaited()) {
      return absl::UnavailableError("it does not ask for it any more");
    }
    return options_.calls->failure();
  };
  return AtAllSlots(moved, check, send);
}

}  // namespace evenshard
