#include "worker/exchange/core/worker_state/worker_state_arrival.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(50);

}  // namespace

std::vector<int64_t> EndsOf(const WorkerState::Memory& memory) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const absl::Span<char> part : memory) {
    ends.push_back(end += static_cast<int64_t>(part.size()));
  }
  return ends;
}

absl::Status WorkerStateArrival::Begin(const WorkerStatePiece& first) {
  absl::MutexLock lock(&mutex_);
  const auto total = static_cast<int64_t>(first.total_bytes());
  const auto piece = static_cast<int64_t>(first.piece_bytes());
  const auto text_bytes = static_cast<int64_t>(first.text_bytes());
  if (total < 0 || piece <= 0 || piece > kMostStatePieceBytes || text_bytes < 0 ||
      text_bytes > kMostStateTextBytes) {
    return absl::DataLossError(absl::StrCat(
        "a worker's state has ", first.total_bytes(), " bytes in pieces of ", first.piece_bytes(),
        ", and ", first.text_bytes(), " of text, allowed: pieces of up to ", kMostStatePieceBytes,
        " and a text of up to ", kMostStateTextBytes));
  }
  if (total_ < 0) {
    total_ = total;
    piece_ = piece;
    text_bytes_ = text_bytes;
  }
  if (total == total_ && piece == piece_ && text_bytes == text_bytes_) return absl::OkStatus();
  return absl::DataLossError("the slots have passed on states of different sizes");
}

absl::Status WorkerStateArrival::PlaceText(const std::string& text) {
  ASSIGN_OR_RETURN(memory_, place_(text));
  ends_ = EndsOf(memory_);
  if (const int64_t own = ends_.empty() ? 0 : ends_.back(); own != total_) {
    return absl::FailedPreconditionError(
        absl::StrCat("a worker's state has ", total_, " bytes, and there is room for ", own));
  }
  absl::MutexLock lock(&mutex_);
  is_placed_ = true;
  return absl::OkStatus();
}

absl::Status WorkerStateArrival::Slot::Take(const WorkerStatePiece& piece,
                                            const std::stop_token& stop) {
  if (!std::exchange(has_begun_, true)) {
    RETURN_IF_ERROR(arrival_.Begin(piece));
    next_ = arrival_.piece_ * slot_;
    return slot_ == 0 && arrival_.text_bytes_ == 0 ? arrival_.PlaceText("") : absl::OkStatus();
  }
  if (slot_ == 0 && static_cast<int64_t>(text_.size()) < arrival_.text_bytes_) {
    text_ += piece.text();
    arrival_.moved_ += static_cast<int64_t>(piece.text().size());
    const auto size = static_cast<int64_t>(text_.size());
    if (piece.text().empty() || size > arrival_.text_bytes_) {
      return absl::DataLossError("the text of a worker's state does not have its size");
    }
    return size == arrival_.text_bytes_ ? arrival_.PlaceText(text_) : absl::OkStatus();
  }
  {
    absl::MutexLock lock(&arrival_.mutex_);
    while (!arrival_.mutex_.AwaitWithTimeout(absl::Condition(&arrival_.is_placed_), kLookPeriod)) {
      if (stop.stop_requested()) return absl::CancelledError("another slot has failed");
    }
  }
  const int64_t expected = std::clamp<int64_t>(arrival_.total_ - next_, 0, arrival_.piece_);
  const auto size = static_cast<int64_t>(piece.data().size());
  if (size == 0 || size != expected) {
    return absl::DataLossError(
        absl::StrCat("a piece of a worker's state has ", size, " bytes, expected ", expected));
  }
  ForEachPart(arrival_.memory_, arrival_.ends_, next_, size,
              [&](int64_t offset, absl::Span<char> to) {
                std::memcpy(to.data(), piece.data().data() + offset, to.size());
              });
  next_ += arrival_.piece_ * arrival_.slots_;
  arrival_.moved_ += size;
  return absl::OkStatus();
}

absl::Status WorkerStateArrival::Slot::CheckEnd() const {
  if (has_begun_ && next_ >= arrival_.total_) return absl::OkStatus();
  return absl::UnavailableError("the sender of a worker's state has ended early");
}

}  // namespace evenshard
