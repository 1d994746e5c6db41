#include "server/agreement/quorum_decider.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/agreement/agreed.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// The weight of the newest time in the average: 1 / kMemory.
constexpr int kMemory = 4;

std::vector<bool> ByRank(const google::protobuf::RepeatedField<uint32_t>& ranks, int workers) {
  std::vector<bool> by_rank(workers);
  for (const uint32_t rank : ranks) by_rank[rank] = true;
  return by_rank;
}

}  // namespace

QuorumDecider::QuorumDecider(const PlannedConfig* config, const Clock* clock)
    : AgreementDecider(config, TakesPart(*config), kAgreedSet),
      clock_(clock),
      workers_(config->workers()),
      quorum_(config->proto().update().quorum()),
      grace_(config->proto().update().grace()),
      parts_(config->shards()) {}

std::vector<bool> QuorumDecider::TakesPart(const PlannedConfig& config) {
  std::vector<bool> takes_part;
  for (int slot = 0; slot < config.shards(); ++slot) {
    takes_part.push_back(!config.plan().chunks_of_shard(slot).empty());
  }
  return takes_part;
}

absl::Status QuorumDecider::CheckContent(const AgreementReport& report) const {
  const AgreementReport::Quorum& quorum = report.quorum();
  const auto is_rank = [this](uint32_t rank) { return rank < static_cast<uint32_t>(workers_); };
  if (report.has_quorum() &&
      std::all_of(quorum.arrived().begin(), quorum.arrived().end(), is_rank) &&
      std::all_of(quorum.training().begin(), quorum.training().end(), is_rank) &&
      (!quorum.has_latest() || IsSet(quorum.latest(), workers_))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a report of slot ", report.slot(),
                                                 " does not say whose gradients have arrived, or "
                                                 "have counted up to an iteration, allowed: of ",
                                                 workers_, " workers"));
}

std::optional<uint64_t> QuorumDecider::TakeContent(const AgreementReport& report) {
  const AgreementReport::Quorum& quorum = report.quorum();
  if (quorum.has_latest() &&
      (!latest_.has_value() || latest_->iteration() < quorum.latest().iteration())) {
    latest_ = quorum.latest();
  }
  if (!quorum.has_iteration()) return std::nullopt;
  parts_[report.slot()] = {.arrived = ByRank(quorum.arrived(), workers_),
                           .training = ByRank(quorum.training(), workers_)};
  return quorum.iteration();
}

bool QuorumDecider::HasArrived(int rank) const {
  for (size_t slot = 0; slot < parts_.size(); ++slot) {
    if (takes_part(slot) && !parts_[slot].arrived[rank]) return false;
  }
  return true;
}

bool QuorumDecider::IsTraining(int rank) const {
  for (size_t slot = 0; slot < parts_.size(); ++slot) {
    if (takes_part(slot) && !parts_[slot].training[rank]) return false;
  }
  return true;
}

void QuorumDecider::Decide(uint64_t iteration) {
  int arrived = 0;
  int training = 0;
  bool all_arrived = true;
  for (int rank = 0; rank < workers_; ++rank) {
    const bool has_arrived = HasArrived(rank);
    arrived += has_arrived ? 1 : 0;
    if (!IsTraining(rank)) continue;
    ++training;
    all_arrived &= has_arrived;
  }
  due_ = absl::InfiniteFuture();
  if (arrived < std::min(quorum_, training)) return;
  const absl::Time now = clock_->Now();
  if (!reached_at_.has_value()) {
    reached_at_ = now;
    if (decided_at_.has_value()) {
      const absl::Duration took = now - *decided_at_;
      average_ = average_ == absl::ZeroDuration() ? took : average_ + (took - average_) / kMemory;
    }
  }
  const absl::Time over = *reached_at_ + grace_ * average_;
  if (all_arrived || now >= over) return Fix(iteration);
  due_ = over;
}

void QuorumDecider::Fix(uint64_t iteration) {
  QuorumSet set = latest_.value_or(QuorumSet());
  set.set_iteration(iteration);
  set.mutable_counted_before()->Resize(workers_, 0);
  std::vector<int> ranks, missing;
  for (int rank = 0; rank < workers_; ++rank) {
    (HasArrived(rank) ? ranks : missing).push_back(rank);
    if (HasArrived(rank)) set.set_counted_before(rank, iteration + 1);
  }
  spdlog::debug(
      "iteration {}: the gradients of workers {} count{}", iteration, absl::StrJoin(ranks, ", "),
      missing.empty() ? "" : absl::StrCat(", not those of ", absl::StrJoin(missing, ", ")));
  latest_ = std::move(set);
  decided_at_ = clock_->Now();
  reached_at_.reset();
}

void QuorumDecider::Forget() {
  // What one slot's part says is used only while all have asked in this view.
  reached_at_.reset();
  due_ = absl::InfiniteFuture();
}

std::optional<uint64_t> QuorumDecider::latest_iteration() const {
  return latest_.has_value() ? std::optional(latest_->iteration()) : std::nullopt;
}

absl::StatusOr<AgreementAnswer> QuorumDecider::Known() const {
  AgreementAnswer known;
  if (latest_.has_value()) *known.mutable_quorum() = *latest_;
  return known;
}

void QuorumDecider::RunTimer() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const absl::Time due = due_;
      const auto changed = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return timer_stops_ || due_ != due;
      };
      mutex_.AwaitWithTimeout(absl::Condition(&changed), due - clock_->Now());
      if (timer_stops_) return;
      if (clock_->Now() < due_) continue;
      due_ = absl::InfiniteFuture();
    }
    Tick();
  }
}

void QuorumDecider::StopTimer() {
  absl::MutexLock lock(&mutex_);
  timer_stops_ = true;
}

}  // namespace evenshard
