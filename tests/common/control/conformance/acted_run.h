#ifndef EVENSHARD_TESTS_COMMON_CONTROL_CONFORMANCE_ACTED_RUN_H_
#define EVENSHARD_TESTS_COMMON_CONTROL_CONFORMANCE_ACTED_RUN_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/common/control/conformance/view_bench.h"
#include "tests/testing/await.h"
#include "tests/testing/thread_check.h"

namespace evenshard {

// A process that does at once what each view asks of it. Thread-safe.
class ActedProcess {
 public:
  ActedProcess(BenchRole role, ProcessState state, std::unique_ptr<ViewLink> link)
      : role_(role), state_(std::move(state)), link_(std::move(link)) {
    link_->Start({.on_view = [this](const View& view) { Follow(view); },
                  .on_end =
                      [this](const absl::Status& reason) {
                        absl::MutexLock lock(&mutex_);
                        ThreadCheck(!end_.has_value());
                        end_ = reason;
                      }});
    absl::MutexLock lock(&mutex_);
    link_->Announce(state_);
  }

  View view() const {
    absl::MutexLock lock(&mutex_);
    return view_;
  }
  std::optional<absl::Status> end() const {
    absl::MutexLock lock(&mutex_);
    return end_;
  }
  uint64_t incarnation() const { return state_.incarnation(); }
  bool HoldsRoles() const { return link_->HoldsRoles(); }

  void Finish() {
    absl::MutexLock lock(&mutex_);
    state_.set_finished(true);
    link_->Announce(state_);
  }

 private:
  void Follow(const View& view) {
    absl::MutexLock lock(&mutex_);
    ThreadCheck(!end_.has_value());
    ThreadCheck(view.number() > view_.number());
    view_ = view;
    state_.set_view(view.number());
    state_.clear_position();
    state_.clear_filled();
    state_.clear_handed_over();
    for (int s = 0; s < view.slot_size(); ++s) {
      const SlotView& slot = view.slot(s);
      if (role_.is_worker || slot.primary().incarnation() != state_.incarnation()) continue;
      if (slot.has_replica() && !slot.replica_is_complete()) state_.add_filled(s);
      if (slot.handing_over()) state_.add_handed_over(s);
      if (!view.worker_set_changes()) continue;
      ProcessState::Position* position = state_.add_position();
      position->set_slot(s);
      position->set_iteration(100 + s);
      position->set_least_iteration(100 + s);
    }
    link_->Announce(state_);
  }

  const BenchRole role_;

  mutable absl::Mutex mutex_;
  ProcessState state_;  // its incarnation is constant
  View view_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);

  const std::unique_ptr<ViewLink> link_;  // destroyed first, because it calls this object
};

// A run under a coordinator, whose processes are ActedProcesses.
class ActedRun {
 public:
  ActedRun(const ViewCoordinator::Settings& settings, std::unique_ptr<ViewBench> bench)
      : settings_(settings), bench_(std::move(bench)) {}
  ~ActedRun() { processes_.clear(); }

  ViewBench& bench() { return *bench_; }
  ActedProcess& operator[](BenchRole role) { return *processes_.at(role); }

  void Start(BenchRole role) { Start(role, settings_.config_fingerprint); }
  void Start(BenchRole role, uint64_t config_fingerprint) {
    ProcessState state;
    if (role.is_worker) {
      state.set_worker(role.index);
    } else {
      state.set_ps(role.index);
      state.set_address(absl::StrCat("host-", role.index, ":1"));
    }
    state.set_incarnation(++incarnations_);
    state.set_config_fingerprint(config_fingerprint);
    processes_[role] =
        std::make_unique<ActedProcess>(role, std::move(state), bench_->Connect(role));
  }
  // Starts all processes and waits for the first view in which all workers take part.
  void StartAll() {
    for (int i = 0; i < settings_.slots + settings_.spares; ++i) Start(Ps(i));
    for (int r = 0; r < settings_.workers; ++r) Start(Worker(r));
    Await(std::string(settings_.workers, 'M'), &ActedRun::Workers);
  }
  void Kill(BenchRole role) {
    bench_->Cut(role);
    processes_.erase(role);
    bench_->Died(role);
  }

  // Waits until all processes that are not ended see `expected`, as `shown` shows a view.
  void Await(const std::string& expected, std::string (*shown)(const View&)) {
    for (const auto& [role, process] : processes_) {
      if (process->end().has_value() || cut_.contains(role)) continue;
      View view = process->view();
      INFO((role.is_worker ? "worker " : "ps ") << role.index << " waits for " << expected);
      AwaitTrue([&] {
        view = process->view();
        INFO("it sees view " << view.ShortDebugString());
        if (process->end().has_value()) FAIL(process->end()->ToString());
        return shown(view) == expected;
      });
    }
  }
  // Whether the process would answer a worker.
  bool Answers(BenchRole role) { return bench_->Lives(role) && processes_.at(role)->HoldsRoles(); }
  // Waits until the process is told, or ended, because the run has failed. Returns why it has.
  std::string AwaitFailure(BenchRole role) {
    ActedProcess& process = *processes_.at(role);
    AwaitTrue([&] { return process.end().has_value() || !bench_->Failure().ok(); });
    return std::string(process.end().value_or(bench_->Failure()).message());
  }
  void Cut(BenchRole role) {
    bench_->Cut(role);
    cut_.insert(role);
  }

  static BenchRole Ps(uint32_t index) { return {false, index}; }
  static BenchRole Worker(uint32_t rank) { return {true, rank}; }

  // "0:1* 2:0" says for each slot the primary, and the copy, with a star if it is complete; ">" if
  // it is handing over.
  static std::string Slots(const View& view) {
    std::string text;
    for (const SlotView& slot : view.slot()) {
      absl::StrAppend(&text, text.empty() ? "" : " ");
      absl::StrAppend(&text, slot.has_primary() ? absl::StrCat(slot.primary().process()) : "-");
      absl::StrAppend(&text, slot.handing_over() ? ">" : ":");
      absl::StrAppend(&text, slot.has_replica() ? absl::StrCat(slot.replica().process()) : "-",
                      slot.replica_is_complete() ? "*" : "");
    }
    return text;
  }
  // The workers' states: "A" absent, "J", "M", "L", "F".
  static std::string Workers(const View& view) {
    std::string text;
    for (const WorkerView& worker : view.worker()) text += "AJMLFX"[worker.state()];
    return text;
  }
  // Who counts from the last change on: "0 2".
  static std::string WorkerSet(const View& view) {
    std::string text;
    if (view.worker_set().empty()) return text;
    for (const uint32_t rank : view.worker_set(view.worker_set_size() - 1).rank()) {
      absl::StrAppend(&text, text.empty() ? "" : " ", rank);
    }
    return text;
  }

 private:
  const ViewCoordinator::Settings settings_;
  const std::unique_ptr<ViewBench> bench_;
  uint64_t incarnations_ = 0;
  std::set<BenchRole> cut_;
  std::map<BenchRole, std::unique_ptr<ActedProcess>> processes_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONTROL_CONFORMANCE_ACTED_RUN_H_
