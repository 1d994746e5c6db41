#include "worker/exchange/grpc/worker_state_calls.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/grpc/for_each_shard.h"

namespace evenshard {
namespace {

constexpr absl::Duration kOfferTimeout = absl::Seconds(1);
// How often a transfer looks whether it should end.
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(250);
// A transfer of which nothing has moved for so long is given up.
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr int64_t kMostPieceBytes = int64_t{1} << 20;

// Copies [begin, begin + size) of the parts, one after another. `ends` has where each one ends.
void Copy(const WorkerStateCalls::Parts& parts, const std::vector<int64_t>& ends, int64_t begin,
          int64_t size, std::string* out) {
  out->resize(size);
  size_t part = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
  for (int64_t done = 0; done < size; ++part) {
    const int64_t length = static_cast<int64_t>(parts[part].size());
    const int64_t from = begin + done - (ends[part] - length);
    const int64_t count = std::min(size - done, length - from);
    std::memcpy(out->data() + done, parts[part].data() + from, count);
    done += count;
  }
}

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

absl::StatusOr<WorkerStateCalls::Received> WorkerStateCalls::Receive(uint64_t iteration) {
  const PersistentCalls& calls = *options_.calls;
  while (true) {
    const uint64_t ticket = NewIncarnation();
    RETURN_IF_ERROR(calls.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const AskWorkerStateResponse asked,
                       control.AskWorkerState(iteration, ticket));
      return asked.has_sender() || asked.is_broken();
    }));
    absl::StatusOr<Received> received = ReceiveOnce(iteration, ticket);
    if (received.ok()) {
      RETURN_IF_ERROR(calls.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
        RETURN_IF_ERROR(control.HasWorkerState(ticket));
        return true;
      }));
      return received;
    }
    if (!PersistentCalls::MayComeBack(received.status())) return received.status();
    spdlog::info("the state of another worker did not arrive, and is asked for again: {}",
                 std::string(received.status().message()));
  }
}

absl::StatusOr<WorkerStateCalls::Received> WorkerStateCalls::ReceiveOnce(uint64_t iteration,
                                                                         uint64_t ticket) {
  const int slots = options_.config->shards();
  std::atomic<int64_t> moved = 0;  // bytes
  absl::Mutex mutex;
  Received received;
  uint64_t piece_bytes = 0;
  const auto begin = [&](const WorkerStatePiece& first) -> absl::Status {
    if (first.piece_bytes() == 0) {
      return absl::DataLossError("the pieces of a worker's state have 0 bytes");
    }
    absl::MutexLock lock(&mutex);
    if (piece_bytes == 0) {
      ASSIGN_OR_RETURN(
          received.memory,
          FloatBuffer::Allocate(static_cast<int64_t>(first.total_bytes() / sizeof(float) + 1)));
      received.bytes = static_cast<int64_t>(first.total_bytes());
      piece_bytes = first.piece_bytes();
    }
    if (first.total_bytes() == static_cast<uint64_t>(received.bytes) &&
        first.piece_bytes() == piece_bytes) {
      return absl::OkStatus();
    }
    return absl::DataLossError("the slots have passed on states of different sizes");
  };
  // Keeps the request alive, and hears of the sender's refusal.
  const auto check = [&]() -> absl::Status {
    const std::shared_ptr<ShardControl> control = options_.calls->control();
    if (control == nullptr) return options_.calls->failure();
    const absl::StatusOr<AskWorkerStateResponse> asked = control->AskWorkerState(iteration, ticket);
    if (absl::IsFailedPrecondition(asked.status())) return asked.status();
    if (asked.ok() && asked->is_broken()) return absl::UnavailableError("the sender is gone");
    return options_.calls->failure();
  };
  const auto receive = [&](ShardControl& control, int slot, const std::stop_token& stop) {
    int64_t next = -1;  // where the next piece belongs; -1: none has come
    const auto take = [&](const WorkerStatePiece& piece) -> absl::Status {
      if (next < 0) {
        RETURN_IF_ERROR(begin(piece));
        next = static_cast<int64_t>(piece_bytes) * slot;
        return absl::OkStatus();
      }
      const int64_t expected =
          std::clamp<int64_t>(received.bytes - next, 0, static_cast<int64_t>(piece_bytes));
      const auto size = static_cast<int64_t>(piece.data().size());
      if (size == 0 || size != expected) {
        return absl::DataLossError(
            absl::StrCat("a piece of a worker's state has ", size, " bytes, expected ", expected));
      }
      std::memcpy(reinterpret_cast<char*>(received.memory.data()) + next, piece.data().data(),
                  size);
      next += static_cast<int64_t>(piece_bytes) * slots;
      moved += size;
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(control.ReceiveWorkerState(ticket, take, stop));
    if (next >= received.bytes) return absl::OkStatus();
    return absl::UnavailableError("the sender of a worker's state has ended early");
  };
  RETURN_IF_ERROR(AtAllSlots(moved, check, receive));
  return received;
}

bool WorkerStateCalls::Offer(uint64_t iteration, Make make, absl::FunctionRef<void()> meanwhile) {
  const std::shared_ptr<ShardControl> control = options_.control(0);
  if (control == nullptr) return false;
  const absl::StatusOr<OfferWorkerStateResponse> answer =
      control->OfferWorkerState(iteration, /*ticket=*/0, /*refusal=*/"", kOfferTimeout);
  if (!answer.ok() || answer->ticket() == 0) return answer.ok() && answer->is_awaited();
  const absl::StatusOr<Parts> parts = make();
  if (!parts.ok()) {
    // If it does not arrive, the other one gives up and asks again.
    control
        ->OfferWorkerState(iteration, answer->ticket(), std::string(parts.status().message()),
                           ShardControl::kTimeout)
        .IgnoreError();
    return true;
  }
  if (const absl::Status sent = Send(answer->ticket(), *parts, meanwhile); !sent.ok()) {
    spdlog::info("this worker's state did not reach another one: {}", std::string(sent.message()));
    control->OfferWorkerState(iteration, answer->ticket(), "", kOfferTimeout).IgnoreError();
  }
  return true;
}

absl::Status WorkerStateCalls::Send(uint64_t ticket, const Parts& parts,
                                    absl::FunctionRef<void()> meanwhile) {
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (const absl::Span<const char> part : parts) {
    ends.push_back(total += static_cast<int64_t>(part.size()));
  }
  const Limits& limits = options_.config->proto().limits();
  const int64_t piece_bytes = std::min<int64_t>(kMostPieceBytes, limits.chunk_bytes());
  std::atomic<int64_t> moved = 0;  // pieces
  const auto send = [&](ShardControl& control, int slot, const std::stop_token& stop) {
    int64_t begin = -1;
    const auto next = [&](WorkerStatePiece* piece) {
      ++moved;
      if (begin < 0) {
        piece->set_total_bytes(total);
        piece->set_piece_bytes(piece_bytes);
        begin = piece_bytes * slot;
        return true;
      }
      if (begin >= total) return false;
      piece->Clear();
      Copy(parts, ends, begin, std::min(piece_bytes, total - begin), piece->mutable_data());
      begin += piece_bytes * options_.config->shards();
      return true;
    };
    return control.SendWorkerState(ticket, next, stop);
  };
  const auto check = [&] {
    meanwhile();
    return options_.calls->failure();
  };
  return AtAllSlots(moved, check, send);
}

}  // namespace evenshard
