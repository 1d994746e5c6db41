#include "common/placement/simulator/quorum_rule.h"

#include <numeric>
#include <utility>

namespace evenshard {
namespace {

// The weight of the newest time in the average is 1 / kMemory, as at the shards.
constexpr double kMemory = 4;

}  // namespace

QuorumRule::QuorumRule(const Update& update, std::vector<double> members, EventQueue* events,
                       Decided decided)
    : quorum_(update.quorum()),
      grace_(update.grace()),
      members_(std::move(members)),
      workers_(std::accumulate(members_.begin(), members_.end(), 0.0)),
      events_(events),
      decided_(std::move(decided)) {}

void QuorumRule::Arrived(int worker) {
  arrived_.push_back(worker);
  arrived_members_ += members_[worker];
  if (arrived_members_ < quorum_) return;
  const bool was_reached = std::exchange(is_reached_, true);
  if (!was_reached && update_ > 0) {
    const double took = events_->now() - decided_at_;
    average_ = average_ == 0 ? took : average_ + (took - average_) / kMemory;
  }
  if (arrived_members_ == workers_) {
    Decide();
  } else if (!was_reached) {
    events_->At(events_->now() + grace_ * average_, this, 0, update_);
  }
}

void QuorumRule::OnEvent(int, int update) {
  if (update == update_) Decide();
}

void QuorumRule::Decide() {
  const std::vector<int> workers = std::exchange(arrived_, {});
  arrived_members_ = 0;
  is_reached_ = false;
  decided_at_ = events_->now();
  decided_(update_++, workers);
}

}  // namespace evenshard
