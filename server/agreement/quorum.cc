#include "server/agreement/quorum.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// A worker is worth a warning when of so many gradients so few have counted.
constexpr uint32_t kLately = (1u << 20) - 1;
constexpr int kMostCounted = 1;

}  // namespace

Quorum::Quorum(Options options)
    : options_(std::move(options)),
      chunks_(static_cast<int>(options_.store->chunks().size())),
      worker_sets_(std::make_shared<const WorkerSets>(options_.config->workers())),
      workers_(options_.config->workers()) {}

void Quorum::Arrived(uint32_t rank, uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  Begin(iteration);
  if (iteration < iteration_) return;
  tells_ |= ++workers_[rank].pushed == chunks_;
}

void Quorum::Begin(uint64_t iteration) {
  if (iteration <= iteration_) return;  // a view may come while pushes of the next one do
  iteration_ = iteration;
  for (Worker& worker : workers_) worker.pushed = 0;
}

void Quorum::Adopt(const PolicyView& view, uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  Begin(iteration);
  worker_sets_ = view.worker_sets;
  for (Worker& worker : workers_) worker.has_left = false;
  for (const uint32_t rank : view.left) workers_[rank].has_left = true;
}

void Quorum::Join(uint32_t rank, uint64_t incarnation) {
  absl::MutexLock lock(&mutex_);
  workers_[rank].incarnation = incarnation;
  workers_[rank].has_left = false;
}

void Quorum::Leave(uint32_t rank, uint64_t incarnation) {
  {
    absl::MutexLock lock(&mutex_);
    if (workers_[rank].incarnation != incarnation) return;
    workers_[rank].has_left = true;
    tells_ = true;
  }
  TellArrivals();
}

std::vector<uint32_t> Quorum::Training() const {
  std::vector<uint32_t> training = worker_sets_->At(iteration_);
  std::erase_if(training, [this](uint32_t rank) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return workers_[rank].has_left || !worker_sets_->WaitsFor(rank, iteration_);
  });
  return training;
}

std::optional<std::vector<uint32_t>> Quorum::Asking() const {
  const std::optional<AgreedSet> latest = options_.store->agreed_set();
  if (latest.has_value() && latest->iteration >= iteration_) return std::nullopt;
  std::vector<uint32_t> arrived;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].pushed == chunks_) arrived.push_back(static_cast<uint32_t>(rank));
  }
  const bool waits_for_none =
      worker_sets_->Waited(iteration_) == 0 && !worker_sets_->At(iteration_).empty();
  const size_t quorum = options_.config->proto().update().quorum();
  const size_t needed = std::min(quorum, Training().size());
  if (arrived.size() < needed || (arrived.empty() && !waits_for_none)) return std::nullopt;
  return arrived;
}

void Quorum::TellArrivals() {
  {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(tells_, false) || !Asking().has_value()) return;
  }
  options_.on_arrival();
}

AgreementReport Quorum::report() const {
  AgreementReport report;
  report.set_config_fingerprint(options_.config->fingerprint());
  report.set_slot(options_.slot);
  AgreementReport::Quorum& quorum = *report.mutable_quorum();
  absl::MutexLock lock(&mutex_);
  if (const std::optional<AgreedSet> latest = options_.store->agreed_set(); latest.has_value()) {
    quorum.mutable_latest()->set_iteration(latest->iteration);
    quorum.mutable_latest()->mutable_counted_before()->Add(latest->counted_before.begin(),
                                                           latest->counted_before.end());
  }
  const std::optional<std::vector<uint32_t>> arrived = Asking();
  if (!arrived.has_value()) return report;
  const std::vector<uint32_t> training = Training();
  quorum.set_iteration(iteration_);
  quorum.mutable_arrived()->Add(arrived->begin(), arrived->end());
  quorum.mutable_training()->Add(training.begin(), training.end());
  return report;
}

std::optional<uint64_t> Quorum::AskedBy(const AgreementReport& report) const {
  return report.quorum().has_iteration() ? std::optional(report.quorum().iteration())
                                         : std::nullopt;
}

std::optional<uint64_t> Quorum::AnsweredBy(const AgreementAnswer& answer) const {
  const bool is_set = answer.has_quorum() && IsSet(answer.quorum(), options_.config->workers());
  return is_set ? std::optional(answer.quorum().iteration()) : std::nullopt;
}

void Quorum::Learn(const AgreementAnswer& answer) {
  const AgreedSet set{.iteration = answer.quorum().iteration(),
                      .counted_before = {answer.quorum().counted_before().begin(),
                                         answer.quorum().counted_before().end()}};
  absl::MutexLock lock(&mutex_);
  if (!options_.store->Learn(set)) return;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!set.Contains(rank)) continue;
    ++workers_[rank].counted;
    NoteOutcome(rank, /*dropped=*/false);
  }
}

bool Quorum::IsKnown(uint64_t iteration) const { return options_.store->KnowsSet(iteration); }

bool Quorum::Counts(uint32_t rank, uint64_t iteration) const {
  return options_.store->CountedBefore(rank) > iteration;
}

void Quorum::NoteDropped(uint32_t rank, uint64_t iteration) {
  absl::MutexLock lock(&mutex_);
  Worker& worker = workers_[rank];
  if (worker.dropped_before > iteration) return;
  worker.dropped_before = iteration + 1;
  ++worker.dropped;
  NoteOutcome(rank, /*dropped=*/true);
}

void Quorum::NoteOutcome(uint32_t rank, bool dropped) {
  Worker& worker = workers_[rank];
  worker.lately = (worker.lately << 1 | (dropped ? 1 : 0)) & kLately;
  if (std::popcount(worker.lately) + kMostCounted < std::popcount(kLately)) return;
  if (options_.slot != 0 || std::exchange(worker.is_told, true)) return;
  spdlog::warn(
      "of the last {} gradients of worker {} nearly all came too late and were dropped: the model "
      "learns nothing from its data; a larger update.quorum or update.grace waits for it",
      std::popcount(kLately), rank);
}

void Quorum::FillStats(ShardStats* stats) const {
  absl::MutexLock lock(&mutex_);
  if (const std::optional<AgreedSet> latest = options_.store->agreed_set(); latest.has_value()) {
    stats->mutable_quorum()->set_iteration(latest->iteration);
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (latest->Contains(rank)) stats->mutable_quorum()->add_worker(rank);
    }
  }
  for (WorkerStats& worker : *stats->mutable_worker()) {
    worker.set_counted_iterations(workers_[worker.worker()].counted);
    worker.set_dropped_iterations(workers_[worker.worker()].dropped);
  }
}

}  // namespace evenshard
