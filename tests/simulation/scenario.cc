#include "tests/simulation/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/testing/dice.h"

namespace evenshard {
namespace {

// The faults have a sequence of random numbers of their own, so that a change to how they are drawn
// leaves the cluster as it was.
constexpr uint64_t kFaultSeed = 0x9e3779b97f4a7c15;
// So has whether the workers bring the model.
constexpr uint64_t kModelSeed = 0xbf58476d1ce4e5b9;
// And how much a shard keeps of a stream.
constexpr uint64_t kHeldSeed = 0xd6e8feb86659fd93;
// And whether the gradient is clipped by its norm.
constexpr uint64_t kClipSeed = 0xa0761d6478bd642f;
// And whether each worker's is limited by those of the others.
constexpr uint64_t kLimitSeed = 0xe9846af9b1a615d5;
// And whether gradients travel in blocks with a scale.
constexpr uint64_t kBitsSeed = 0x8ebc6af09c88c6e3;
// And whether something happens while some workers have finished and others have not.
constexpr uint64_t kEndSeed = 0xc2b2ae3d27d4eb4f;
// And whether they assign values.
constexpr uint64_t kAssignSeed = 0xbf58476d1ce4e5b9;
// And whether faults last.
constexpr uint64_t kLastingSeed = 0x94d049bb133111eb;
// And whether workers that push at their own pace keep within a bound.
constexpr uint64_t kSspSeed = 0xe7037ed1a0b428db;
// And whether an update waits for some of the workers only.
constexpr uint64_t kQuorumSeed = 0xd1b54a32d192ed03;
// And what becomes of stale gradients.
constexpr uint64_t kStaleSeed = 0x2545f4914f6cdd1d;

// And what local steps and replies in few bits bring.
constexpr uint64_t kLocalSeed = 0x8cb92ba72f3d8dd7;

std::string DrawModel(Dice& dice) {
  const int features = dice.Int(7, 10);
  return absl::StrCat("input { channels: ", dice.Int(5, 8), " height: 1 width: 1 }\n",
                      "  layer { name: \"fc1\" linear { out_features: ", features, " } }\n",
                      dice.Once(2) ? "  layer { name: \"norm\" batch_norm {} }\n" : "",
                      "  layer { name: \"fc2\" linear { out_features: ", dice.Int(4, 8), " } }");
}

std::string DrawDeclaredModel(Dice& dice) {
  std::string text = "from_workers {";
  const auto add = [&text](const std::string& name, int rows, int columns, const char* more = "") {
    absl::StrAppend(&text, "\n    tensor { name: \"", name, "\" shape: ", rows,
                    columns > 0 ? absl::StrCat(" shape: ", columns) : "", more, " }");
  };
  const int features = dice.Int(7, 10);
  add("fc1.weight", features, dice.Int(5, 8));
  add("fc1.bias", features, 0);
  if (dice.Once(2)) add("norm.running_mean", features, 0, " role: RUNNING_STATISTIC");
  add("fc2.weight", dice.Int(4, 8), features);
  return text + "\n  }";
}

std::string DrawRecovery(const Scenario& scenario, Dice& dice) {
  std::string text =
      absl::StrCat("recovery {\n  replicas: ", scenario.replicas,
                   "\n  silence_seconds: ", (scenario.etcd ? 2 : 1) * (scenario.lasting ? 0.5 : 1));
  if (scenario.has_checkpoints) {
    absl::StrAppend(&text, "\n  checkpoint { folder: \"/checkpoints\" keep: ", dice.Int(2, 4));
    // A chunk of 64 bytes has up to three arrays of optimizer state, or a velocity for each worker,
    // the mean square of a correction, and what the rounding of updates loses.
    const int arrays = 2 + std::max(3, scenario.workers);
    if (dice.Once(2)) absl::StrAppend(&text, " buffer_bytes: ", 64 * arrays * dice.Int(1, 3));
    if (scenario.sync && !dice.Once(4)) {
      absl::StrAppend(&text, " every_iterations: ", dice.Int(1, 5), " }");
    } else {
      absl::StrAppend(&text, " every_seconds: ", absl::StrFormat("%.3f", dice.Between(0.05, 1)),
                      " }");
    }
  }
  const int loss = dice.Int(0, 3);
  if (loss == 1) absl::StrAppend(&text, "\n  worker_loss: WAIT");
  if (loss >= 2) {
    absl::StrAppend(&text, "\n  worker_loss: CONTINUE min_workers: ",
                    dice.Int(1, std::max(1, scenario.workers - 1)));
  }
  for (int i = 0; i < scenario.spares; ++i) {
    absl::StrAppend(&text, "\n  spare { address: \"127.0.0.1:", 7100 + i, "\" }");
  }
  if (scenario.etcd) absl::StrAppend(&text, "\n  etcd { endpoint: \"127.0.0.1:2379\" }");
  return text + "\n}";
}

std::string DrawGradientEncoding(bool has_half, Dice dice) {
  if (!dice.Once(3)) return has_half ? " gradient_encoding: FLOAT16" : "";
  return absl::StrCat(" gradient_encoding: ", dice.Pick({"INT8", "INT4", "E3M0"}),
                      dice.Once(3) ? "" : " error_feedback: true",
                      dice.Once(2) ? " gradient_rounding: STOCHASTIC" : "");
}

std::string DrawCorrection(Dice& dice) {
  return absl::StrCat(" asynchrony { correction: ",
                      dice.Pick({"DELAY_COMPENSATION", "ADAPTIVE_DELAY_COMPENSATION", "GAP_AWARE"}),
                      dice.Once(2) ? " rate: BY_STALENESS" : "", " }");
}

}  // namespace

const std::vector<Plant>& AllPlants() {
  static const auto& plants = *new std::vector<Plant>{Plant::kCountsRepeats,
                                                      Plant::kAnswersBeforeCopy,
                                                      Plant::kLeavesOutSync,
                                                      Plant::kIgnoresViews,
                                                      Plant::kInconsistentCut,
                                                      Plant::kDealsByFirstWorkerSet,
                                                      Plant::kReportsFilledEarly,
                                                      Plant::kHandsOverEarly,
                                                      Plant::kBeatsByTimeOfDay,
                                                      Plant::kKeepsAll,
                                                      Plant::kReadsWithoutSnapshot,
                                                      Plant::kGivesUpLostSlots,
                                                      Plant::kHidesUnreachable,
                                                      Plant::kGivesUpUntaken,
                                                      Plant::kMovesCuts,
                                                      Plant::kGivesThirdSlot,
                                                      Plant::kEndsWhenFinished,
                                                      Plant::kEndsAtReadErrors,
                                                      Plant::kLeavesFolderFree,
                                                      Plant::kPublishesUnfenced,
                                                      Plant::kTrustsLease,
                                                      Plant::kForgetsNorms,
                                                      Plant::kSettlesEarly,
                                                      Plant::kAllowsStaleness,
                                                      Plant::kForgetsSets,
                                                      Plant::kMixesSets,
                                                      Plant::kIgnoresLate,
                                                      Plant::kForgetsSent};
  return plants;
}

std::string PlantName(Plant plant) {
  switch (plant) {
    case Plant::kNone:
      return "none";
    case Plant::kCountsRepeats:
      return "counts_repeats";
    case Plant::kAnswersBeforeCopy:
      return "answers_before_copy";
    case Plant::kLeavesOutSync:
      return "leaves_out_sync";
    case Plant::kIgnoresViews:
      return "ignores_views";
    case Plant::kInconsistentCut:
      return "inconsistent_cut";
    case Plant::kDealsByFirstWorkerSet:
      return "deals_by_first_worker_set";
    case Plant::kReportsFilledEarly:
      return "reports_filled_early";
    case Plant::kHandsOverEarly:
      return "hands_over_early";
    case Plant::kBeatsByTimeOfDay:
      return "beats_by_time_of_day";
    case Plant::kKeepsAll:
      return "keeps_all";
    case Plant::kReadsWithoutSnapshot:
      return "reads_without_snapshot";
    case Plant::kGivesUpLostSlots:
      return "gives_up_lost_slots";
    case Plant::kHidesUnreachable:
      return "hides_unreachable";
    case Plant::kGivesUpUntaken:
      return "gives_up_untaken";
    case Plant::kMovesCuts:
      return "moves_cuts";
    case Plant::kGivesThirdSlot:
      return "gives_third_slot";
    case Plant::kEndsWhenFinished:
      return "ends_when_finished";
    case Plant::kEndsAtReadErrors:
      return "ends_at_read_errors";
    case Plant::kLeavesFolderFree:
      return "leaves_folder_free";
    case Plant::kPublishesUnfenced:
      return "publishes_unfenced";
    case Plant::kTrustsLease:
      return "trusts_lease";
    case Plant::kSettlesEarly:
      return "settles_early";
    case Plant::kForgetsNorms:
      return "forgets_norms";
    case Plant::kAllowsStaleness:
      return "allows_staleness";
    case Plant::kForgetsSets:
      return "forgets_sets";
    case Plant::kMixesSets:
      return "mixes_sets";
    case Plant::kIgnoresLate:
      return "ignores_late";
    case Plant::kForgetsSent:
      return "forgets_sent";
  }
  return "";
}

Scenario DrawScenario(uint64_t seed, const Extent& most) {
  Dice dice(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.most = most;
  scenario.slots = dice.Int(1, 4);
  scenario.spares = dice.Once(3) ? dice.Int(1, 2) : 0;
  scenario.workers = dice.Int(1, 5);
  scenario.etcd = dice.Once(3);
  scenario.sync = !dice.Once(4);
  Dice ssp_dice(seed ^ kSspSeed);
  if (!scenario.sync && ssp_dice.Once(2)) scenario.staleness = ssp_dice.Int(1, 4);
  scenario.has_checkpoints = !dice.Once(4);
  scenario.replicas = scenario.processes() > 1 && !dice.Once(3) ? 1 : 0;
  // Afterwards, so that the rest is drawn as without a limit.
  scenario.slots = std::min(scenario.slots, most.slots);
  scenario.spares = std::min(scenario.spares, most.spares);
  scenario.workers = std::min(scenario.workers, most.workers);
  if (scenario.processes() == 1) scenario.replicas = 0;
  scenario.iterations = dice.Once(3) ? 0 : dice.Int(4, 20);
  scenario.latency = absl::Microseconds(1) * dice.Scale(100, 5000);
  scenario.compute = absl::Milliseconds(1) * dice.Scale(1, 100);
  scenario.restart = absl::Seconds(1) * dice.Scale(0.05, 4);

  Dice model_dice(seed ^ kModelSeed);
  scenario.from_workers = model_dice.Once(4);
  if (scenario.from_workers && scenario.iterations == 0)
    scenario.iterations = model_dice.Int(4, 20);

  Dice quorum_dice(seed ^ kQuorumSeed);
  if (scenario.sync && scenario.workers > 1 && !scenario.from_workers && quorum_dice.Once(4)) {
    scenario.quorum = quorum_dice.Int(1, scenario.workers - 1);
  }

  Dice assign_dice(seed ^ kAssignSeed);
  if (scenario.from_workers && scenario.sync && assign_dice.Once(2)) {
    scenario.assigns_every = assign_dice.Int(2, 5);
  }

  Dice lasting_dice(seed ^ kLastingSeed);
  scenario.lasting = lasting_dice.Once(2);
  scenario.restarts_finished = lasting_dice.Once(2);
  // Long enough for many more checkpoints than are kept.
  if (scenario.lasting && scenario.iterations > 0 && lasting_dice.Once(4)) {
    scenario.iterations *= 10;
    scenario.compute = std::min(scenario.compute, absl::Milliseconds(5));
  }
  scenario.iterations = std::min(scenario.iterations, most.iterations);

  Dice held_dice(seed ^ kHeldSeed);
  Dice local_dice(seed ^ kLocalSeed);
  scenario.weighs = local_dice.Once(4);
  const bool rounds_updates = scenario.sync && !scenario.from_workers && local_dice.Once(5);
  Dice clip_dice(seed ^ kClipSeed);
  scenario.clips = scenario.sync && clip_dice.Once(3);
  Dice stale_dice(seed ^ kStaleSeed);
  scenario.corrects = !scenario.sync && scenario.workers > 1 && stale_dice.Once(2);
  const int batch = dice.Int(2, 4);
  const int images = batch * scenario.workers * dice.Int(1, 6) + dice.Int(0, 5);
  std::string shards;
  for (int i = 0; i < scenario.slots; ++i) {
    absl::StrAppend(&shards, "shard { address: \"127.0.0.1:", 7000 + i, "\" }\n");
  }
  const bool deterministic = scenario.sync && dice.Once(2);
  // What is scaled down has a sum that depends on the order, which is only known where it is that
  // of the ranks, or where a gradient is alone.
  Dice limit_dice(seed ^ kLimitSeed);
  scenario.limits = (!scenario.sync || deterministic || scenario.quorum) && limit_dice.Once(3);
  scenario.config = absl::StrCat(
      "model {\n  ", scenario.from_workers ? DrawDeclaredModel(model_dice) : DrawModel(dice),
      "\n}\n", "partition { scheme: ",
      dice.Pick({"MEMORY_BASED", "STRIPED", scenario.slots <= 2 ? "LAYER_BASED" : "STRIPED"}),
      " }\n", shards, "workers: ", scenario.workers, "\nupdate { policy: ",
      scenario.quorum      ? absl::StrCat("QUORUM quorum: ", *scenario.quorum,
                                          " grace: ", quorum_dice.Pick({"0", "0.1", "1"}),
                                     quorum_dice.Once(2) ? " late: CARRY" : "")
      : scenario.sync      ? "SYNC"
      : scenario.staleness ? absl::StrCat("SSP staleness: ", *scenario.staleness)
                           : "ASYNC",
      scenario.corrects ? DrawCorrection(stale_dice) : "",
      deterministic ? " deterministic: true" : "", dice.Once(6) ? " clip_value: 0.5" : "",
      scenario.clips ? absl::StrCat(" clip_global_norm: ", clip_dice.Scale(0.1, 1000)) : "",
      scenario.limits ? absl::StrCat(" max_norm: ", limit_dice.Scale(1, 1.5)) : "", " }\n",
      "optimizer { kind: ",
      dice.Pick({"SGD", "MOMENTUM", "NESTEROV", "ADAM", "ADAGRAD", "ADAMW", "RMSPROP",
                 "RMSPROP_MOMENTUM", "ADAM_AMSGRAD", "ADAMW_AMSGRAD", "LION"}),
      " learning_rate: 0.01", dice.Once(4) ? " weight_decay: 0.01" : "",
      dice.Once(4) ? " schedule { kind: STEP step_iterations: 3 gamma: 0.5 }" : "", " }\n",
      scenario.from_workers
          ? ""
          : absl::StrCat("training { batch_size: ", batch, " seed: ", dice.Int(1, 1000),
                         scenario.iterations > 0
                             ? absl::StrCat(" iterations: ", scenario.iterations)
                             : absl::StrCat(" epochs: ", dice.Int(1, 3)),
                         " }\n", "data { synthetic { images: ", images, " } }\n"),
      "exchange { schedule: ", dice.Pick({"SEQUENTIAL", "BACKWARD", "FULL"}),
      DrawGradientEncoding(dice.Once(5), Dice(seed ^ kBitsSeed)),
      dice.Once(6) && !rounds_updates ? " parameter_encoding: BFLOAT16" : "",
      rounds_updates ? absl::StrCat(" update_encoding: ", local_dice.Pick({"INT8", "INT4", "E3M0"}))
                     : "",
      " shared_memory: false }\n", "limits { chunk_bytes: 64 connections: ", dice.Int(1, 3),
      held_dice.Once(2) ? absl::StrCat(" held_bytes: ", 64 * held_dice.Int(1, 4)) : "",
      scenario.lasting
          ? absl::StrFormat(" exchange_seconds: %.3f startup_seconds: 8 reconnect_seconds: 2 }\n",
                            // A lease of etcd lasts for 2 s at least.
                            lasting_dice.Between(4, 6) * (scenario.etcd ? 4 : 1))
          : " exchange_seconds: 300 startup_seconds: 20 reconnect_seconds: 2 }\n",
      DrawRecovery(scenario, dice), "\n");
  return scenario;
}

std::vector<Fault> Scenario::DrawFaults(absl::Duration duration) const {
  if (lasting) return DrawLastingFaults(duration);
  Dice dice(seed ^ kFaultSeed);
  std::vector<Fault> faults(dice.Int(0, 5));
  for (Fault& fault : faults) {
    using Kind = Fault::Kind;
    static constexpr Kind kKinds[] = {Kind::kCrash,      Kind::kCrash,       Kind::kCrash,
                                      Kind::kCrash,      Kind::kCrash,       Kind::kPause,
                                      Kind::kPause,      Kind::kCut,         Kind::kSlow,
                                      Kind::kCrashAll,   Kind::kLosePower,   Kind::kFullDisk,
                                      Kind::kDiskErrors, Kind::kCoordinator, Kind::kBreakStreams};
    fault.kind = kKinds[dice.Int(0, std::size(kKinds) - 1)];
    fault.at = duration * dice.Between(0, 1.3);
    fault.node = dice.Int(0, nodes() - 1);
    // With the coordinator as well.
    fault.other = dice.Int(0, nodes());
    fault.lasts = absl::Seconds(dice.Scale(0.02, 8));
    if (dice.Once(2)) fault.effects = dice.Int(0, 30);
    // Several at about the same time, sometimes.
    if (&fault != &faults[0] && dice.Once(3)) {
      fault.at = (&fault - 1)->at + absl::Seconds(dice.Scale(0.0001, 0.5));
    }
  }
  std::sort(faults.begin(), faults.end(),
            [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return faults;
}

std::vector<Fault> Scenario::DrawLastingFaults(absl::Duration duration) const {
  Dice dice(seed ^ kFaultSeed);
  std::vector<Fault> faults(dice.Int(1, 4));
  for (Fault& fault : faults) {
    using Kind = Fault::Kind;
    static constexpr Kind kKinds[] = {
        Kind::kAway,       Kind::kAway,        Kind::kAway,      Kind::kCut,
        Kind::kCut,        Kind::kCut,         Kind::kCut,       Kind::kPause,
        Kind::kPause,      Kind::kSlow,        Kind::kCrashAll,  Kind::kLosePower,
        Kind::kDiskErrors, Kind::kSlowDisk,    Kind::kSlowDisk,  Kind::kReadErrors,
        Kind::kBitRot,     Kind::kCoordinator, Kind::kStepClock, Kind::kBreakStreams};
    fault.kind = kKinds[dice.Int(0, std::size(kKinds) - 1)];
    fault.at = duration * dice.Between(0, 1);
    fault.node = dice.Int(0, nodes() - 1);
    fault.lasts = absl::Seconds(dice.Scale(0.5, 30));
    fault.one_way = dice.Once(3);
    if (fault.kind == Kind::kCut) {
      // Only pairs that talk: a worker and a shard, a primary and its replica, and anyone and the
      // coordinator. Shards that clip by a norm, or agree on whose gradients count, talk too, and a
      // cut between them that lasts ends the run.
      if (fault.node >= processes()) {
        fault.other = dice.Once(4) ? nodes() : dice.Int(0, slots - 1);
      } else {
        fault.other =
            clips || quorum.has_value() || dice.Once(4) ? nodes() : (fault.node + 1) % processes();
      }
      if (dice.Once(2)) std::swap(fault.node, fault.other);
    } else if (fault.kind == Kind::kSlowDisk) {
      fault.node %= processes();
    } else if (fault.kind == Kind::kStepClock && dice.Once(2)) {
      fault.lasts = -fault.lasts;
    }
    // What is damaged is read at once, sometimes.
    if (&fault == &faults[0] || dice.Once(2)) continue;
    const Fault& before = *(&fault - 1);
    if (before.kind != Kind::kReadErrors && before.kind != Kind::kBitRot) continue;
    fault.kind = Kind::kCrashAll;
    fault.at = before.at;
  }
  if (Dice end_dice(seed ^ kEndSeed); end_dice.Once(6)) {
    const absl::Duration stops = absl::Seconds(end_dice.Scale(1, 20));
    faults.push_back({.kind = Fault::Kind::kPause,
                      .at_end = true,
                      .node = processes() + end_dice.Int(0, workers - 1),
                      .lasts = stops});
    faults.push_back({.kind = Fault::Kind::kAway,
                      .at = stops * end_dice.Between(0, 1),
                      .at_end = true,
                      .node = end_dice.Int(0, processes() - 1),
                      .lasts = absl::Seconds(end_dice.Scale(0.5, 30))});
  }
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return faults;
}

std::vector<Fault> FaultsIn(const Scenario& smaller, const Scenario& whole,
                            const std::vector<Fault>& faults) {
  const auto place = [&](int node) {
    if (node == whole.nodes()) return smaller.nodes();  // the coordinator
    if (node < whole.processes()) return node < smaller.processes() ? node : -1;
    const int rank = node - whole.processes();
    return rank < smaller.workers ? smaller.processes() + rank : -1;
  };
  std::vector<Fault> left;
  for (Fault fault : faults) {
    fault.node = place(fault.node);
    fault.other = place(fault.other);
    if (fault.node >= 0 && fault.other >= 0) left.push_back(fault);
  }
  return left;
}

std::vector<std::string> Scenario::NodeNames() const {
  std::vector<std::string> names;
  for (int i = 0; i < processes(); ++i) names.push_back(absl::StrCat("ps ", i));
  for (int i = 0; i < workers; ++i) names.push_back(absl::StrCat("worker ", i));
  names.push_back(etcd ? "etcd" : "launch");
  return names;
}

std::string Scenario::ToString() const {
  return absl::StrFormat(
      "%d slots, %d spares, %d workers%s, views by %s, %s, %s, latency %s, an iteration computes "
      "for %s, restart after %s%s\n%s",
      slots, spares, workers, from_workers ? " who bring the model" : "", etcd ? "etcd" : "launch",
      replicas > 0 ? "with copies" : "without copies",
      has_checkpoints ? "with checkpoints" : "without checkpoints",
      absl::FormatDuration(absl::Trunc(latency, absl::Microseconds(1))),
      absl::FormatDuration(absl::Trunc(compute, absl::Microseconds(1))),
      absl::FormatDuration(absl::Trunc(restart, absl::Milliseconds(1))),
      !lasting            ? ""
      : restarts_finished ? ", faults last, and who has finished is started again"
                          : ", faults last",
      config);
}

std::string Fault::ToString(const std::vector<std::string>& names) const {
  const std::string for_a_while =
      absl::StrCat(" for ", absl::FormatDuration(absl::Trunc(lasts, absl::Milliseconds(1))));
  switch (kind) {
    case Kind::kCrash:
      return absl::StrCat(names[node], " crashes",
                          effects < 0 ? "" : absl::StrCat(" after ", effects, " effects"));
    case Kind::kAway:
      return absl::StrCat(names[node], " crashes, and cannot be started", for_a_while);
    case Kind::kPause:
      return absl::StrCat(names[node], " stops", for_a_while);
    case Kind::kCut:
      return absl::StrCat(names[node], one_way ? " does not reach " : " and ", names[other],
                          one_way ? "" : " do not reach each other", for_a_while);
    case Kind::kSlow:
      return absl::StrCat(names[node], " is slow", for_a_while);
    case Kind::kCrashAll:
      return "everything is killed";
    case Kind::kLosePower:
      return "the power fails";
    case Kind::kFullDisk:
      return absl::StrCat("the disk is full", for_a_while);
    case Kind::kDiskErrors:
      return absl::StrCat("the disk has errors", for_a_while);
    case Kind::kSlowDisk:
      return absl::StrCat("the disk is slow for ", names[node], for_a_while);
    case Kind::kReadErrors:
      return absl::StrCat("a file of the newest checkpoint cannot be read", for_a_while);
    case Kind::kBitRot:
      return "a bit of a file of the newest checkpoint changes";
    case Kind::kStepClock:
      return absl::StrCat("the clock of ", names[node], " is set by ",
                          absl::FormatDuration(absl::Trunc(lasts, absl::Milliseconds(1))));
    case Kind::kCoordinator:
      return absl::StrCat(names.back(), " does nothing", for_a_while);
    case Kind::kBreakStreams:
      return absl::StrCat("all connections of ", names[node], " break");
  }
  return "";
}

}  // namespace evenshard
