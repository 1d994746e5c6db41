#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// How long a run may take after the last fault: processes are started again within seconds, and
// the coordinator waits for some of them.
constexpr absl::Duration kLimit = absl::Seconds(120);
// When a run that has failed is started again.
constexpr absl::Duration kOperator = absl::Seconds(1);
constexpr uint64_t kMostSteps = 3'000'000;
constexpr int kMostRuns = 8;

}  // namespace

Simulation::Simulation(const Scenario& scenario, const PlannedConfig* config,
                       std::vector<Fault> faults, Plant plant, bool verbose)
    : scenario_(scenario),
      faults_(std::move(faults)),
      context_(scenario_, config, plant),
      world_(context_.world) {
  world_.verbose = verbose;
  world_.typical_delay = scenario_.latency;
  if (scenario_.lasting) {
    world_.keepalive = absl::Seconds(config->proto().limits().exchange_seconds()) / 3;
  }
  for (const std::string& name : scenario_.NodeNames()) {
    const int node = world_.AddNode(name);
    if (scenario_.lasting) world_.clock(node).SetRate(world_.dice().Between(0.98, 1.02));
  }
  context_.ps = [this](int index) {
    const auto found = ps_.find(context_.NodeOfPs(index));
    return found == ps_.end() ? nullptr : found->second.get();
  };
  context_.coordinator = [this] { return coordinator_.get(); };
  context_.exit = [this](int node, const std::string& why) {
    // Not in the middle of what the process does.
    world_.loop().After(absl::ZeroDuration(), [this, ref = world_.Ref(node), why] {
      if (world_.IsRunning(ref)) EndProcess(ref.node, why, /*by_signal=*/false);
    });
  };
  context_.has_trained = [this] {
    if (!std::exchange(has_trained_, true)) Schedule(/*at_end=*/true);
  };
  context_.disk.leaves_out_sync = plant == Plant::kLeavesOutSync;
  context_.disk.keeps_all = plant == Plant::kKeepsAll;
  context_.disk.locks_once = plant == Plant::kLeavesFolderFree;
  context_.disk.on_commit = [this](const std::string& path) {
    if (!absl::EndsWith(path, kManifestName)) return;
    const std::string folder = path.substr(0, path.rfind('/'));
    const auto id = ParseCheckpointId(folder.substr(folder.rfind('/') + 1));
    if (!id.has_value()) return;
    context_.oracle.CheckpointCompleted(*id);
    world_.Log(absl::StrCat("complete: ", id->ToString()));
  };
}

Simulation::~Simulation() { KillAll("the simulation ends"); }

void Simulation::StartAll() {
  // What etcd has stays.
  if (++runs_ > 1 && !scenario_.etcd) context_.oracle.RunStarted();
  const int node = context_.NodeOfCoordinator();
  const NodeRef ref = world_.Boot(
      node, [this] { coordinator_->AfterEvent(); }, nullptr);
  coordinator_ = Coordinator::Start(
      {.context = &context_,
       .node = ref,
       .run = 1000 + runs_,
       .kill =
           [this](int killed, const std::string& why) {
             world_.loop().After(absl::ZeroDuration(), [this, why, ref = world_.Ref(killed)] {
               if (world_.IsRunning(ref)) EndProcess(ref.node, why, /*by_signal=*/true);
             });
           },
       .restart = [this](int ended) { RestartLater(ended); }});
  context_.watch.Start();
  done_.clear();
  for (int i = 0; i < node; ++i) {
    // Sometimes one comes late.
    const double delay =
        world_.dice().Once(10) ? world_.dice().Scale(0.1, 5) : world_.dice().Between(0, 0.1);
    Supervise(absl::Seconds(delay), [this, i, run = runs_] {
      if (run != runs_ || coordinator_ == nullptr || world_.IsRunning(i)) return;
      if (world_.loop().Now() < away_until_[i]) {
        RestartLater(i);
      } else {
        StartProcess(i);
      }
    });
  }
}

void Simulation::KillAll(const std::string& why) {
  world_.Log(why);
  for (int node = 0; node <= context_.NodeOfCoordinator(); ++node) world_.Halt(node);
  // launch knows nothing of what was before it.
  worker_deaths_ = scenario_.etcd ? worker_deaths_ + static_cast<int>(workers_.size()) : 0;
  workers_.clear();
  ps_.clear();
  coordinator_.reset();
}

void Simulation::StartProcess(int node) {
  const uint64_t incarnation = NewIncarnation();
  const auto crash = [this, node] { EndProcess(node, "crashed", /*by_signal=*/true); };
  coordinator_->Started(node);
  if (node < scenario_.processes()) {
    const NodeRef ref = world_.Boot(
        node, [this, node] { ps_.at(node)->AfterEvent(); }, crash);
    ps_[node] = std::make_unique<PsProcess>(&context_, node, ref, incarnation);
  } else {
    const NodeRef ref = world_.Boot(
        node, [this, node] { workers_.at(node)->AfterEvent(); }, crash);
    workers_[node] =
        std::make_unique<WorkerProcess>(&context_, node - scenario_.processes(), ref, incarnation);
  }
  world_.Log(absl::StrCat(world_.name(node), " starts as ", incarnation));
}

void Simulation::EndProcess(int node, const std::string& why, bool by_signal) {
  const bool is_worker = node >= scenario_.processes();
  const bool is_done = is_worker && workers_.at(node)->is_done() && why.empty();
  world_.Log(absl::StrCat(world_.name(node), is_done ? " has finished" : " ends: ", why));
  const NodeRef ref = world_.Ref(node);
  // A process that ends by itself gives up its lease in etcd first, as far as it comes.
  if (by_signal || !scenario_.etcd) world_.Halt(node);
  ps_.erase(node);
  workers_.erase(node);
  world_.Halt(node);
  done_[node] = is_done;
  if (!is_done && !is_worker) ++ps_deaths_;
  if (!is_done && is_worker && (by_signal || IsByTime(why))) ++worker_deaths_;
  world_.Run(world_.Ref(context_.NodeOfCoordinator()),
             absl::Milliseconds(1) * world_.dice().Scale(0.1, 50),
             [this, ref, why, by_signal] { coordinator_->Ended(ref, why, by_signal); });
  if (scenario_.etcd) RestartLater(node);
}

void Simulation::Supervise(absl::Duration delay, std::function<void()> run) {
  if (scenario_.etcd) {
    world_.loop().After(delay, std::move(run));
  } else {
    world_.Run(world_.Ref(context_.NodeOfCoordinator()), delay, std::move(run));
  }
}

void Simulation::RestartLater(int node) {
  const absl::Duration delay = scenario_.restart * world_.dice().Scale(0.5, 2);
  Supervise(delay, [this, node, run = runs_] {
    if (run != runs_ || coordinator_ == nullptr || world_.IsRunning(node)) return;
    bool may_start = world_.loop().Now() >= away_until_[node];
    // launch knows who is needed again.
    if (done_[node] && scenario_.etcd && scenario_.lasting) {
      may_start &= scenario_.restarts_finished;
    } else if (done_[node] && scenario_.etcd) {
      // Only if the run has gone back.
      const int rank = node - scenario_.processes();
      const View& view = coordinator_->view();
      may_start &= rank < view.worker_size() && view.worker(rank).state() == WorkerView::ABSENT;
    }
    if (may_start) {
      done_[node] = false;
      StartProcess(node);
    } else {
      RestartLater(node);
    }
  });
}

void Simulation::Schedule(bool at_end) {
  for (const Fault& fault : faults_) {
    if (fault.at_end != at_end) continue;
    world_.loop().After(fault.at, [this, fault] {
      if (coordinator_ != nullptr) Strike(fault);
    });
    limit_ =
        std::max(limit_, world_.loop().Now() + fault.at + absl::AbsDuration(fault.lasts) + kLimit);
  }
}

bool Simulation::GoesOn(const Fault& fault) const {
  const int processes = scenario_.processes();
  return fault.kind == Fault::Kind::kCut && fault.node < processes && fault.other < processes &&
         scenario_.replicas > 0 && !scenario_.clips;
}

void Simulation::Strike(const Fault& fault) {
  using Kind = Fault::Kind;
  world_.Log(absl::StrCat("FAULT: ", fault.ToString(scenario_.NodeNames())));
  const absl::Time until = world_.loop().Now() + fault.lasts;
  context_.watch.Struck(until, GoesOn(fault));
  switch (fault.kind) {
    case Kind::kCrash:
      if (!world_.IsRunning(fault.node)) return;
      if (fault.effects >= 0) {
        world_.CrashAfter(fault.node, fault.effects);
      } else {
        EndProcess(fault.node, "crashed", /*by_signal=*/true);
      }
      return;
    case Kind::kAway:
      away_until_[fault.node] = std::max(away_until_[fault.node], until);
      if (world_.IsRunning(fault.node)) EndProcess(fault.node, "crashed", /*by_signal=*/true);
      return;
    case Kind::kPause:
      was_disturbed_ = true;
      world_.Pause(fault.node, until);
      return;
    case Kind::kCut:
      was_disturbed_ = true;
      if (fault.node == fault.other) return;
      world_.Cut(fault.node, fault.other, until);
      if (!fault.one_way) {
        world_.Cut(fault.other, fault.node, until);
        return;
      }
      // Nothing is acknowledged, so that TCP soon sends nothing more in the other direction.
      world_.loop().After(absl::Seconds(world_.dice().Scale(0.05, 1)),
                          [this, from = fault.other, to = fault.node, until] {
                            if (world_.loop().Now() < until) world_.Cut(from, to, until);
                          });
      return;
    case Kind::kSlow:
      was_disturbed_ = true;
      world_.Slow(fault.node, absl::Milliseconds(200), until);
      return;
    case Kind::kCrashAll:
    case Kind::kLosePower:
      if (runs_ >= kMostRuns) return;
      KillAll("everything is killed");
      ps_deaths_ += scenario_.processes();
      if (fault.kind == Kind::kLosePower) context_.disk.LosePower();
      StartAll();
      return;
    case Kind::kFullDisk:
      disk_failed_ = true;
      context_.disk.FailUntil(until, absl::ResourceExhaustedError("No space left on device"), 1);
      return;
    case Kind::kDiskErrors:
      disk_failed_ = true;
      context_.disk.FailUntil(until, absl::UnknownError("Input/output error"), 3);
      return;
    case Kind::kSlowDisk:
      context_.disk.SlowUntil(fault.node, until);
      return;
    case Kind::kReadErrors:
      context_.disk.FailReadsUntil(NewestFolder(), until);
      return;
    case Kind::kBitRot:
      if (context_.disk.Rot(NewestFolder())) {
        context_.oracle.Damaged(*context_.oracle.NewestCheckpoint());
      }
      return;
    case Kind::kStepClock:
      world_.clock(fault.node).Set(fault.lasts);
      return;
    case Kind::kCoordinator:
      was_disturbed_ = true;
      longest_wait_ = std::max(longest_wait_, fault.lasts);
      coordinator_->StandStill(until);
      return;
    case Kind::kBreakStreams:
      world_.BreakAll(fault.node);
      return;
  }
}

std::string Simulation::NewestFolder() const {
  const std::optional<CheckpointId> newest = context_.oracle.NewestCheckpoint();
  return absl::StrCat(context_.config.proto().recovery().checkpoint().folder(), "/",
                      newest.has_value() ? newest->ToString() : "");
}

Outcome Simulation::Run() {
  StartAll();
  limit_ = world_.loop().Now() + kLimit;
  Schedule(/*at_end=*/false);
  Outcome outcome;
  Oracle& oracle = context_.oracle;
  while (oracle.violation().empty()) {
    if (!world_.loop().Step()) break;
    if (coordinator_ == nullptr) continue;
    if (!coordinator_->failure().ok()) {
      const std::string judged = JudgeFailure(coordinator_->failure());
      if (!judged.empty()) oracle.Violated(judged);
      // Whoever operates it starts it again, if there is something to go on from.
      if (scenario_.has_checkpoints && runs_ < kMostRuns && judged.empty()) {
        KillAll(absl::StrCat("the run has failed: ", coordinator_->failure().message()));
        world_.loop().After(kOperator, [this] { StartAll(); });
        continue;
      }
      outcome.end = absl::StrCat("failed: ", coordinator_->failure().message());
      break;
    }
    if (coordinator_->finished()) {
      outcome.end = "finished";
      break;
    }
    if (world_.loop().Now() > limit_ || world_.loop().steps() > kMostSteps) {
      for (const auto& [node, worker] : workers_) world_.Log(worker->Describe());
      oracle.Violated(absl::StrCat("the run does not end; it has counted ",
                                   oracle.coverage().changes, " changes of chunks"));
    }
  }
  if (outcome.end == "finished" && oracle.violation().empty()) {
    const View& last = coordinator_->view();
    const Training& training = context_.config.proto().training();
    int64_t iterations = scenario_.from_workers ? scenario_.exchanges() : training.iterations();
    if (training.has_epochs()) {
      const auto dealing =
          Dealing::Create({.images = context_.config.proto().data().synthetic().images(),
                           .batch_size = training.batch_size(),
                           .worker_sets = {last.worker_set().begin(), last.worker_set().end()}});
      if (!dealing.ok()) oracle.Violated(std::string(dealing.status().message()));
      iterations = dealing.ok() ? dealing->IterationsOf(training.epochs()) : 0;
    }
    oracle.RunFinished(last, iterations);
    outcome.history = oracle.FinalHistory();
    for (const auto& changes : outcome.history) {
      for (const ChangeRecord& change : changes) {
        outcome.whole_worker_set &=
            static_cast<int>(change.workers.size()) == context_.config.workers();
      }
    }
  }
  outcome.violation = oracle.violation();
  outcome.lasted = world_.loop().Elapsed();
  outcome.steps = world_.loop().steps();
  outcome.lines = world_.lines();
  outcome.coverage = oracle.coverage();
  return outcome;
}

}  // namespace evenshard
