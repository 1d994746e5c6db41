#include "server/session/worker_state_requests.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace evenshard {

absl::StatusOr<WorkerStateRequests::Progress> WorkerStateRequests::Ask(
    uint32_t worker, uint64_t ticket, uint64_t iteration, const std::vector<uint32_t>& ranks) {
  absl::MutexLock lock(&mutex_);
  ForgetOld();
  Request& request = requests_[worker];
  if (request.ticket != ticket) {
    request = Request();
    request.ticket = ticket;
    request.iteration = iteration;
  }
  request.asked = clock_.Now();
  if (!request.refusal.empty()) return absl::FailedPreconditionError(request.refusal);
  is_lost_ =
      is_lost_ || absl::c_all_of(ranks, [this](uint32_t rank) { return requests_.contains(rank); });
  if (is_lost_) {
    return absl::UnavailableError(
        absl::StrCat("nobody has the parameters and the optimizer's state before exchange ",
                     iteration, ", since all workers were started again"));
  }
  return request.progress;
}

WorkerStateRequests::Answer WorkerStateRequests::Offer(const Sender& sender, uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  ForgetOld();
  requests_.erase(sender.worker);
  Answer answer{.is_awaited = !requests_.empty()};
  for (auto& [rank, request] : requests_) {
    if (request.progress != Progress::kNone || request.iteration != iteration) continue;
    request.progress = Progress::kSender;
    request.sender = sender;
    answer.ticket = request.ticket;
    break;
  }
  return answer;
}

std::optional<WorkerStateRequests::Sender> WorkerStateRequests::SenderOf(uint64_t ticket) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [rank, request] : requests_) {
    if (request.ticket == ticket && request.progress == Progress::kSender) return request.sender;
  }
  return std::nullopt;
}

bool WorkerStateRequests::IsAwaited(uint64_t ticket) const {
  const absl::Time since = clock_.Now() - kForgetAfter;
  absl::MutexLock lock(&mutex_);
  return absl::c_any_of(requests_, [&](const auto& entry) {
    return entry.second.ticket == ticket && entry.second.asked >= since;
  });
}

void WorkerStateRequests::Refuse(uint64_t ticket, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, request] : requests_) {
    if (request.ticket != ticket || request.progress != Progress::kSender) continue;
    request.refusal =
        absl::StrCat("worker ", request.sender.worker,
                     " cannot send its parameters and its optimizer's state: ", Printable(reason));
  }
}

void WorkerStateRequests::Lose(uint64_t ticket) {
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, request] : requests_) {
    if (request.ticket == ticket) request.progress = Progress::kBroken;
  }
}

void WorkerStateRequests::Received(uint32_t worker) {
  absl::MutexLock lock(&mutex_);
  requests_.erase(worker);
}

void WorkerStateRequests::ForgetOld() {
  const absl::Time since = clock_.Now() - kForgetAfter;
  std::erase_if(requests_, [&](const auto& entry) { return entry.second.asked < since; });
}

}  // namespace evenshard
