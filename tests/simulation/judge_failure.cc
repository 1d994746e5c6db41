// Whether a simulated run may fail for a reason, given what has happened.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/simulation.h"

namespace evenshard {
namespace {

// How long a run may take to begin while nothing keeps it from that: the coordinator waits 3 s for
// processes that are late.
constexpr absl::Duration kBegins = absl::Seconds(5);

}  // namespace

int Simulation::WholeCheckpoints() const {
  const std::string& folder = context_.config.proto().recovery().checkpoint().folder();
  const std::vector<std::string> names = context_.disk.FoldersOf(folder);
  return static_cast<int>(
      std::count_if(names.begin(), names.end(), [this](const std::string& name) {
        const std::optional<CheckpointId> id = ParseCheckpointId(name);
        return id.has_value() && context_.oracle.IsWhole(*id);
      }));
}

bool Simulation::IsByTime(absl::string_view why) const {
  const Limits& limits = context_.config.proto().limits();
  const absl::Duration startup = absl::Seconds(limits.startup_seconds());
  const absl::Duration exchange = absl::Seconds(limits.exchange_seconds());
  // A process waits for etcd as long as startup_seconds before its first lease.
  const bool waits_for_etcd = absl::StrContains(why, "etcd has not answered for");
  return ((absl::StrContains(why, "limits.startup_seconds") || waits_for_etcd) &&
          context_.watch.LongestCalm(startup) < kBegins) ||
         (absl::StrContains(why, "limits.exchange_seconds") &&
          context_.watch.LongestCalm(exchange) < exchange / 2);
}

bool Simulation::WorkerWasDisturbed(absl::Duration window) const {
  const absl::Time since = world_.loop().Now() - window;
  for (int rank = 0; rank < scenario_.workers; ++rank) {
    if (world_.DisturbedUntil(context_.NodeOfWorker(rank)) > since) return true;
  }
  return false;
}

bool Simulation::WorkerLostSlot(absl::Duration window) const {
  const absl::Time since = world_.loop().Now() - window;
  for (int rank = 0; rank < scenario_.workers; ++rank) {
    const auto was_cut_from = [&, worker = context_.NodeOfWorker(rank)](const ProcessId& process) {
      const int ps = context_.NodeOfPs(static_cast<int>(process.process()));
      return std::max(world_.CutUntil(worker, ps), world_.CutUntil(ps, worker)) > since;
    };
    for (const SlotView& slot : coordinator_->view().slot()) {
      if (slot.has_primary() && slot.has_replica() && was_cut_from(slot.primary()) &&
          was_cut_from(slot.replica())) {
        return true;
      }
    }
  }
  return false;
}

std::string Simulation::JudgeFailure(const absl::Status& failure) const {
  const absl::string_view message = failure.message();
  const Recovery& recovery = context_.config.proto().recovery();
  if (disk_failed_ && (absl::StrContains(message, "No space left") ||
                       absl::StrContains(message, "Input/output error"))) {
    return "";
  }
  const int worker_losses = worker_deaths_ + coordinator_->lost_leases();
  if (recovery.worker_loss() == Recovery::FAIL && worker_losses > 0 &&
      absl::StartsWith(message, "worker ")) {
    return "";
  }
  // The coordinator was away for about as long as it needs to declare a worker lost that is cut
  // off, or another one has started counting anew, or the config forbids losing workers, or the
  // coordinator has moved a slot first for a worker that reaches neither of its processes.
  const absl::Duration patience =
      absl::Seconds(context_.config.proto().limits().exchange_seconds());
  const absl::Duration undecided = std::max(longest_wait_, coordinator_->longest_absence());
  const bool cannot_help =
      undecided > 0.4 * patience || (was_disturbed_ && coordinator_->was_replaced()) ||
      (recovery.worker_loss() == Recovery::FAIL && WorkerWasDisturbed(patience)) ||
      (recovery.worker_loss() == Recovery::WAIT && WorkerLostSlot(patience));
  if (cannot_help && IsByTime(message)) return "";
  // There is no other checkpoint.
  if (absl::StrContains(message, "cannot be read now") && WholeCheckpoints() <= 1) return "";
  // Nothing makes up for a process then, not even for one that nobody has heard of yet.
  if (recovery.replicas() == 0 && !recovery.has_checkpoint() && ps_deaths_ > 0 &&
      absl::StartsWith(message, "ps ")) {
    return "";
  }
  if ((absl::StrContains(message, "has checkpoints of an earlier run") ||
       absl::StrContains(message, "has no complete checkpoint to resume from")) &&
      WholeCheckpoints() <= (context_.disk.has_read_errors() ? 1 : 0)) {
    return "";
  }
  // Not even a first view has come in that time.
  if (absl::StrContains(message, "(limits.startup_seconds)") && IsByTime(message)) return "";
  if ((worker_losses > 0 || was_disturbed_ || !world_.IsRunning(context_.NodeOfWorker(0))) &&
      absl::StrContains(message, "worker 0 was lost before it could")) {
    return "";
  }
  if (absl::StrContains(message, "no process has a replica") &&
      ps_deaths_ + coordinator_->lost_leases() + (was_disturbed_ ? 1 : 0) >=
          (coordinator_->has_had_copies() ? 2 : 1) &&
      (!recovery.has_checkpoint() || absl::StrContains(message, "after the training had ended"))) {
    return "";
  }
  return absl::StrCat("the run fails: ", message);
}

}  // namespace evenshard
