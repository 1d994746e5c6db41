#include "server/session/worker_state_requests.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace evenshard {

absl::StatusOr<WorkerStateRequests::Progress> WorkerStateRequests::Ask(
    uint32_t worker, uint64_t ticket, uint64_t iteration, const std::vector<uint32_t>& ranks,
    const std::set<uint32_t>& have_finished) {
  absl::MutexLock lock(&mutex_);
  ForgetOld();
  const absl::Time now = clock_.Now();
  const auto [found, is_new] = requests_.try_emplace(worker);
  Request& request = found->second;
  if (is_new) request.begun = now;
  if (request.ticket != ticket) {
    request.ticket = ticket;
    request.iteration = iteration;
    request.progress = Progress::kNone;
    request.refusal.clear();
  }
  request.asked = now;
  if (!request.refusal.empty()) return absl::FailedPreconditionError(request.refusal);
  const auto has_nothing = [&](uint32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (requests_.contains(rank)) return true;
    const auto offered = offered_.find(rank);
    const absl::Time seen =
        std::max(request.begun, offered == offered_.end() ? absl::InfinitePast() : offered->second);
    return have_finished.contains(rank) && now - seen > kForgetAfter;
  };
  const bool nobody_has = absl::c_all_of(ranks, has_nothing);
  if (nobody_has && may_be_lost_) {
    requests_.erase(found);
    return absl::NotFoundError(
        absl::StrCat("nobody has the optimizer's state before exchange ", iteration));
  }
  is_lost_ = is_lost_ || nobody_has;
  if (is_lost_) {
    return absl::UnavailableError(
        absl::StrCat("nobody has the parameters and the optimizer's state before exchange ",
                     iteration, ", since all workers were started again or have ended"));
  }
  return request.progress;
}

WorkerStateRequests::Answer WorkerStateRequests::Offer(const Sender& sender, uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  ForgetOld();
  requests_.erase(sender.worker);
  offered_[sender.worker] = clock_.Now();
  Answer answer{.is_awaited = !requests_.empty()};
  for (auto& [rank, request] : requests_) {
    if (request.progress != Progress::kNone) continue;
    if (request.iteration < iteration) request.progress = Progress::kPassed;
    if (request.iteration != iteration || answer.ticket != 0) continue;
    request.progress = Progress::kSender;
    request.sender = sender;
    answer.ticket = request.ticket;
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
    request.refusal = absl::StrCat("worker ", request.sender.worker,
                                   " cannot send what it keeps by itself: ", Printable(reason));
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
