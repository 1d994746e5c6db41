#include "tests/simulation/watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_id.h"
#include "tests/simulation/context.h"
#include "tests/simulation/control/coordinator.h"
#include "tests/simulation/ps_process.h"

namespace evenshard {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(100);

// How many checkpoints there may be on the disk besides recovery.checkpoint.keep: those that are
// being written, and those that wait for a shard that is slower.
constexpr int kUnfinished = 10;

// A checkpoint may be so many of its periods old, and so many iterations.
constexpr int kPeriods = 4;
constexpr int kIterations = 12;
// How often a slot looks whether its checkpoints are complete, or others have left them out. Until
// it has looked, it may leave out its next ones, because the earlier ones still seem to wait.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// And as long as this after something bad has happened.
constexpr absl::Duration kRest = absl::Seconds(5);

// How long a coordinator may take to lock the folder of checkpoints once it can.
constexpr absl::Duration kLocking = absl::Seconds(1);

// How long a run may stand still, in silence_seconds and beside them: until a replica that is not
// reached has been given up, and for what an iteration takes.
constexpr int kSilences = 3;
constexpr absl::Duration kStandsStill = absl::Seconds(1);

// How many slots a process may have in its memory if it has a replica.
constexpr int kMostSlots = 2;

}  // namespace

Watch::Watch(Context* context) : context_(*context) {}

void Watch::Start() {
  since_ = locked_ = stands_since_ = context_.world.loop().Now();
  if (!started_) Look();
  started_ = true;
}

void Watch::Struck(absl::Time until, bool goes_on) {
  struck_until_ = std::max({struck_until_, until, context_.world.loop().Now()});
  calm_.Note(false, context_.world.loop().Now());
  if (!goes_on) stopped_until_ = std::max({stopped_until_, until, context_.world.loop().Now()});
}

void Watch::CountsAsSilent(int node) {
  World& world = context_.world;
  const absl::Duration silence = context_.coordinator()->silence();
  // Its messages may just have taken long.
  if (!world.IsRunning(node) || silence < 200 * world.typical_delay) return;
  const absl::Time until =
      std::max(world.DisturbedUntil(node), world.DisturbedUntil(context_.NodeOfCoordinator()));
  if (world.loop().Now() < until + 2 * silence + absl::Seconds(6)) return;
  context_.oracle.Violated(
      absl::StrCat(world.name(node), " counts as silent, though nothing has befallen it"));
}

absl::Duration Watch::LongestCalm(absl::Duration window) const {
  const absl::Time now = context_.world.loop().Now();
  return calm_.Longest(now - window, now);
}

bool Watch::IsCalm() const {
  const World& world = context_.world;
  const SimDisk& disk = context_.disk;
  const Scenario& scenario = context_.scenario;
  if (context_.coordinator() == nullptr || disk.is_failing() || disk.has_read_errors() ||
      disk.is_slow()) {
    return false;
  }
  for (int node = 0; node <= context_.NodeOfCoordinator(); ++node) {
    if (world.IsRunning(node) && world.DisturbedUntil(node) > world.loop().Now()) return false;
  }
  // A spare stands in for a ps.
  int processes = 0;
  for (int node = 0; node < scenario.processes(); ++node) {
    processes += world.IsRunning(node) ? 1 : 0;
  }
  return processes >= scenario.slots;
}

void Watch::Look() {
  calm_.Note(IsCalm(), context_.world.loop().Now());
  if (context_.coordinator() != nullptr) {
    if (context_.scenario.has_checkpoints) {
      LookAtFolder();
      LookAtLock();
      LookAtAge();
    }
    LookAtMemory();
    LookAtProgress();
  }
  context_.world.loop().After(kPeriod, [this] { Look(); });
}

void Watch::LookAtFolder() {
  const auto& settings = context_.config.proto().recovery().checkpoint();
  int checkpoints = 0;
  for (const std::string& name : context_.disk.FoldersOf(settings.folder())) {
    checkpoints += ParseCheckpointId(name).has_value() ? 1 : 0;
  }
  // Nobody removes anything before the run goes on, and nothing can be removed from a disk that
  // fails. A loss of power brings back what was removed.
  const absl::Time now = context_.world.loop().Now();
  if (context_.coordinator()->view().number() == 0) without_view_ = now;
  if (now < std::max(without_view_, context_.disk.last_trouble()) + kRest ||
      checkpoints <= settings.keep() + kUnfinished)
    return;
  context_.oracle.Violated(absl::StrCat("there are ", checkpoints, " checkpoints on the disk with ",
                                        "recovery.checkpoint.keep: ", settings.keep()));
}

void Watch::LookAtLock() {
  const absl::Time now = context_.world.loop().Now();
  const std::string& folder = context_.config.proto().recovery().checkpoint().folder();
  if (!context_.coordinator()->may_lock_folder() || context_.disk.is_failing() ||
      context_.disk.IsLocked(absl::StrCat(folder, "/LOCK"))) {
    locked_ = now;
  } else if (now > locked_ + kLocking) {
    context_.oracle.Violated("nobody keeps other runs out of the folder of checkpoints");
  }
}

void Watch::LookAtAge() {
  const absl::Time now = context_.world.loop().Now();
  const View& view = context_.coordinator()->view();
  std::string roles = absl::StrCat(view.generation(), " ");
  for (const SlotView& slot : view.slot()) absl::StrAppend(&roles, slot.SerializeAsString(), "|");
  for (const WorkerView& worker : view.worker()) {
    absl::StrAppend(&roles, worker.SerializeAsString(), "|");
  }
  const Coverage& coverage = context_.oracle.coverage();
  if (roles != roles_ || coverage.checkpoints != checkpoints_ || now < struck_until_ + kRest) {
    roles_ = std::move(roles);
    checkpoints_ = coverage.checkpoints;
    changes_ = coverage.changes;
    since_ = now;
    return;
  }
  const auto& settings = context_.config.proto().recovery().checkpoint();
  const auto chunks = static_cast<int>(context_.config.plan().chunks().size());
  const int writers = context_.scenario.sync ? 1 : context_.scenario.workers;
  const int iterations = (coverage.changes - changes_) / (chunks * writers);
  // A chunk takes up to ten times the delay to be written.
  const absl::Duration writing = 20 * chunks * context_.world.typical_delay;
  if (iterations < kIterations + kPeriods * settings.every_iterations() ||
      now < since_ + kPeriods * (absl::Seconds(settings.every_seconds()) + writing + kLook)) {
    return;
  }
  context_.oracle.Violated(absl::StrCat("no checkpoint was completed for ", iterations,
                                        " iterations and ", absl::FormatDuration(now - since_)));
}

void Watch::LookAtMemory() {
  for (int index = 0; index < context_.scenario.processes(); ++index) {
    PsProcess* const process = context_.ps(index);
    if (process == nullptr || !process->holds_replica()) continue;
    if (process->slots_held() <= kMostSlots) continue;
    context_.oracle.Violated(
        absl::StrCat("ps ", index, " has ", process->slots_held(), " slots in its memory"));
  }
}

bool Watch::IsWhole() const {
  for (int node = 0; node < context_.scenario.nodes(); ++node) {
    if (!context_.world.IsRunning(node)) return false;
  }
  const View& view = context_.coordinator()->view();
  return view.number() > 0 &&
         std::all_of(view.slot().begin(), view.slot().end(),
                     [](const SlotView& slot) { return slot.has_primary(); }) &&
         std::all_of(view.worker().begin(), view.worker().end(),
                     [](const WorkerView& worker) { return worker.state() == WorkerView::MEMBER; });
}

void Watch::LookAtProgress() {
  const absl::Time now = context_.world.loop().Now();
  const uint64_t view = context_.coordinator()->view().number();
  const int changes = context_.oracle.coverage().changes;
  if (!IsWhole() || view != stands_in_view_ || changes != stands_at_ ||
      now < stopped_until_ + kRest) {
    stands_since_ = now;
    stands_in_view_ = view;
    stands_at_ = changes;
    return;
  }
  const absl::Duration silence =
      absl::Seconds(context_.config.proto().recovery().silence_seconds());
  if (now < stands_since_ + kSilences * silence + kStandsStill) return;
  context_.oracle.Violated(absl::StrCat("the run stands still for ",
                                        absl::FormatDuration(now - stands_since_),
                                        ", though nothing keeps it from going on"));
}

}  // namespace evenshard
