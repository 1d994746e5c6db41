#ifndef EVENSHARD_TESTS_WORKER_TRAINING_PLAYED_EXCHANGE_H_
#define EVENSHARD_TESTS_WORKER_TRAINING_PLAYED_EXCHANGE_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "tests/worker/data/order/worker_sets.h"
#include "worker/exchange/core/training_exchange.h"

namespace evenshard {

// Plays the shards, the views and all other workers for one worker. When an iteration is settled, a
// new view may come, or the run goes back. Checks that the worker pushes one iteration after the
// other and none before the one before is settled.
class PlayedExchange final : public TrainingExchange {
 public:
  struct Return {
    int64_t to = 0;
    std::vector<WorkerSet> worker_sets = {};
  };
  struct Script {
    std::vector<WorkerSet> worker_sets = {};
    int64_t start = 0;
    // By iteration: the worker sets of a view that comes when it is settled. Happens once each.
    std::map<int64_t, std::vector<WorkerSet>> settled = {};
    // By iteration: where the run goes back to instead of settling it. Happens once each.
    std::map<int64_t, Return> returns = {};
    // Where the run goes back to when the worker leaves for the first time.
    std::optional<Return> return_at_end = {};
    std::set<int> layers = {};  // with tensors
    // The text of another worker's state, whose parts are all zeros; empty if nobody has one.
    std::string state = {};
    int64_t others_at = 0;  // they have completed the exchanges before this one
  };
  // What the worker did.
  struct Log {
    std::vector<int64_t> pushed;            // iterations, in order
    std::vector<int> layers;                // that were pushed, in order
    std::map<int64_t, ExchangeKind> kinds;  // by iteration, where the worker gave one
    std::vector<int64_t> asked;             // before which exchanges it asked for a state
    int pulls = 0;
    std::vector<absl::Status> left;  // with what outcomes
  };

  PlayedExchange(Script script, Log* log)
      : script_(std::move(script)),
        log_(*log),
        next_(script_.start),
        worker_sets_(script_.worker_sets) {}

  int64_t next_iteration() const override { return next_; }
  uint64_t view_number() const override { return view_; }
  std::vector<WorkerSet> worker_sets() const override { return worker_sets_; }
  bool went_back() const override { return return_.has_value(); }

  absl::StatusOr<int64_t> Resume() override {
    REQUIRE(return_.has_value());
    next_ = return_->to;
    SetWorkerSets(return_->worker_sets);
    return_.reset();
    pending_.clear();
    return next_;
  }

  absl::Status Pull(absl::Span<float> parameters) override {
    ++log_.pulls;
    return Failure();
  }

  absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                        absl::Span<float> parameters) override {
    const absl::Status begun = Begin(iteration, gradients, parameters);
    if (!begun.ok()) return begun;
    return AwaitAll();
  }

  absl::Status Begin(ExchangeKind kind, absl::Span<const float> pushed,
                     absl::Span<float> parameters) override {
    log_.kinds[next_] = kind;
    return Begin(next_, pushed, parameters);
  }
  absl::Status Begin(int64_t iteration, absl::Span<const float>, absl::Span<float>) override {
    CHECK(pending_.empty());
    CHECK(iteration == next_);
    next_ = iteration + 1;
    log_.pushed.push_back(iteration);
    pending_ = script_.layers;
    return Failure();
  }

  absl::Status Push(int layer) override {
    CHECK(pending_.count(layer) == 1);
    log_.layers.push_back(layer);
    return absl::OkStatus();
  }

  void Flush() override {}

  absl::Status AwaitLayer(int layer) override {
    if (pending_.erase(layer) == 1 && pending_.empty()) Settle();
    return Failure();
  }

  absl::Status AwaitAll() override {
    if (!pending_.empty()) {
      pending_.clear();
      Settle();
    }
    return Failure();
  }

  bool is_behind() const override { return false; }
  bool is_begun() const override { return !pending_.empty(); }

  absl::Status ReceiveState(const WorkerState::Place& place) override {
    CHECK(pending_.empty());
    log_.asked.push_back(next_);
    if (next_ < script_.others_at) return absl::OutOfRangeError("the others have gone on");
    if (script_.state.empty()) return absl::NotFoundError("there is no other worker");
    const absl::StatusOr<WorkerState::Memory> memory = place(script_.state);
    if (!memory.ok()) return memory.status();
    for (const absl::Span<char> part : *memory) std::fill(part.begin(), part.end(), 0);
    return absl::OkStatus();
  }
  void OfferState(WorkerState::Make, absl::FunctionRef<void()>) override {}

  absl::Status Report(const WorkerUsage&, const std::stop_token&) override {
    return absl::OkStatus();
  }

  absl::Status Leave(const absl::Status& outcome) override {
    log_.left.push_back(outcome);
    if (outcome.ok()) return_ = std::exchange(script_.return_at_end, std::nullopt);
    return Failure();
  }
  absl::Status SendLeave(const absl::Status&, absl::Duration) override { return absl::OkStatus(); }

  Traffic traffic() const override { return traffic_; }

 private:
  // The last iteration that was pushed is settled.
  void Settle() {
    const int64_t iteration = next_ - 1;
    if (const auto found = script_.returns.find(iteration); found != script_.returns.end()) {
      return_ = found->second;
      script_.returns.erase(found);
    } else if (const auto view = script_.settled.find(iteration); view != script_.settled.end()) {
      SetWorkerSets(view->second);
      script_.settled.erase(view);
    }
  }
  void SetWorkerSets(const std::vector<WorkerSet>& worker_sets) {
    worker_sets_ = worker_sets;
    ++view_;
  }
  absl::Status Failure() const {
    return went_back() ? absl::UnavailableError("the run goes back") : absl::OkStatus();
  }

  Script script_;
  Log& log_;
  int64_t next_;
  uint64_t view_ = 1;
  std::vector<WorkerSet> worker_sets_;
  std::set<int> pending_;  // layers of the last iteration that was pushed
  std::optional<Return> return_;
  const Traffic traffic_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_TRAINING_PLAYED_EXCHANGE_H_
