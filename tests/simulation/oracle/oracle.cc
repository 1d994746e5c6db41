// What is checked as it happens. oracle_end.cc has what is checked when the run has succeeded,
// oracle_quorum.cc what QUORUM promises, and oracle_limit.cc what update.max_norm does.

#include "tests/simulation/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {
namespace {

// A chunk's clock as a policy has it from the beginning.
void AddWorkers(const PlannedConfig& config, ChunkClock* clock) {
  if (!config.is_synchronous()) clock->next_iteration.resize(config.workers());
  if (config.proto().update().max_norm() > 0) clock->norms.resize(config.workers());
}

Segments BytesOf(const std::vector<float>& floats) {
  return {{reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)}};
}

}  // namespace

Oracle::Oracle(const PlannedConfig* config, std::optional<uint64_t> staleness)
    : config_(*config), sync_(config->is_synchronous()), staleness_(staleness) {
  for (int slot = 0; slot < config_.shards(); ++slot) {
    scratch_.push_back(ParameterStore::Create(config_, slot).value());
    for (StoredChunk& chunk : scratch_.back()->chunks()) {
      absl::MutexLock lock(&chunk.mutex);
      AddWorkers(config_, &chunk.mutable_clock());
      initial_[chunk.info().id] = ChunkState::Of(chunk);
    }
  }
}

void Oracle::Violated(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

std::vector<const Instance*> Oracle::Line(GenerationId generation, int slot) const {
  std::vector<const Instance*> line;
  for (const Instance& instance : instances_) {
    if (instance.generation != generation || instance.slot != slot) continue;
    if (line.empty() || line.back()->view < instance.view) line.push_back(&instance);
  }
  return line;
}

const ChunkState* Oracle::Find(GenerationId generation, uint32_t chunk,
                               const std::function<bool(const ChunkState&)>& is_it) const {
  const auto line = Line(generation, config_.plan().chunks()[chunk].shard);
  for (auto instance = line.rbegin(); instance != line.rend(); ++instance) {
    const ChunkHistory& history = (*instance)->chunks.at(chunk);
    // Under ASYNC a checkpoint may have changes that the slot's next primary has not, because their
    // workers were not answered. It also has which of their pushes it counts.
    const size_t length = sync_ ? history.length() : history.changes.size();
    for (size_t i = length + 1; i-- > 0;) {
      if (is_it(history.After(i))) return &history.After(i);
    }
  }
  return nullptr;
}

Instance* Oracle::Newest(GenerationId generation, int slot) {
  Instance* newest = nullptr;
  for (Instance& instance : instances_) {
    if (instance.generation != generation || instance.slot != slot) continue;
    if (newest == nullptr || instance.view > newest->view) newest = &instance;
  }
  return newest;
}

int Oracle::PrimaryBegan(int process, int slot, const View& view, ParameterStore& store) {
  Instance instance{.number = static_cast<int>(instances_.size()),
                    .process = process,
                    .slot = slot,
                    .generation = Generation(view.generation()),
                    .view = view.number()};
  for (StoredChunk& chunk : store.chunks()) {
    absl::MutexLock lock(&chunk.mutex);
    ChunkState state = ChunkState::Of(chunk);
    AddWorkers(config_, &state.clock);
    instance.chunks[chunk.info().id].first = std::move(state);
  }
  Instance* const before = Newest(instance.generation, slot);
  if (before == nullptr) {
    CheckStart(instance, view.checkpoint());
  } else if (before->view < instance.view) {
    ++coverage_.takeovers;
    CheckTakeover(instance, *before);
  } else {
    // It was stopped, and the slot has passed on meanwhile: nothing that it does may count.
    for (auto& [id, history] : instance.chunks) history.kept = 0;
  }
  instances_.push_back(std::move(instance));
  return instances_.back().number;
}

void Oracle::CheckStart(const Instance& instance, const std::string& checkpoint) {
  const std::string what = absl::StrCat(instance.generation.ToString(), ", slot ", instance.slot);
  if (checkpoint.empty()) {
    origins_[instance.generation] = std::nullopt;
    if (instance.generation != GenerationId{0, 1} && instance.slot == 0) ++coverage_.begun_anew;
    for (const auto& [id, history] : instance.chunks) {
      const ChunkState& initial = initial_.at(id);
      if (history.first.HasBitsOf(initial) && history.first.clock == initial.clock) continue;
      Violated(absl::StrCat(what, " does not begin with the initial parameters: chunk ", id));
    }
    return;
  }
  const std::optional<CheckpointId> from = ParseCheckpointId(checkpoint);
  if (!from.has_value() || !complete_.contains(*from)) {
    return Violated(absl::StrCat(what, " begins from ", checkpoint, ", which was not complete"));
  }
  ++coverage_.restored;
  const GenerationId origin{complete_.at(*from), from->generation};
  origins_[instance.generation] = {origin, *from};
  for (const auto& [id, history] : instance.chunks) {
    const ChunkState& state = history.first;
    if (sync_ && (state.clock.trained() != from->iteration ||
                  state.clock.recent_assignments != from->assignments)) {
      return Violated(absl::StrCat(what, ": checkpoint ", checkpoint, " has chunk ", id, " at ",
                                   state.Describe()));
    }
    const ChunkState* recorded =
        Find(origin, id, [&](const ChunkState& other) { return other.Written() == state.clock; });
    if (recorded == nullptr || !recorded->HasWrittenBitsOf(state)) {
      return Violated(absl::StrCat(
          what, ": chunk ", id, " of checkpoint ", checkpoint, " at ", state.Describe(),
          recorded == nullptr ? " is not in the history" : " has other bits than the history"));
    }
  }
}

void Oracle::CheckTakeover(Instance& instance, Instance& before) {
  for (auto& [id, history] : instance.chunks) {
    ChunkHistory& old = before.chunks.at(id);
    const std::string what =
        absl::StrCat("ps ", instance.process, " takes slot ", instance.slot, " over from ps ",
                     before.process, " with chunk ", id, " at ", history.first.Describe());
    size_t kept = old.changes.size() + 1;
    while (kept-- > 0 && old.After(kept).clock != history.first.clock) {
    }
    if (kept > old.changes.size()) {
      return Violated(absl::StrCat(what, ", which is not in the history"));
    }
    if (!old.After(kept).HasBitsOf(history.first)) {
      return Violated(absl::StrCat(what, ", with other bits"));
    }
    old.kept = kept;
    coverage_.lost_changes += static_cast<int>(old.changes.size() - kept);
    if (old.acknowledged > kept) {
      return Violated(
          absl::StrCat(what, ", but workers were told ", old.After(old.acknowledged).Describe()));
    }
    if (kept < old.changes.size() && WasHandedOver(before, instance)) {
      return Violated(
          absl::StrCat(what, ", but it was handed over at ", old.changes.back().state.Describe()));
    }
  }
}

bool Oracle::WasHandedOver(const Instance& before, const Instance& instance) const {
  const auto next = handed_over_.upper_bound({before.generation, before.slot, before.view});
  return next != handed_over_.end() &&
         *next <= std::tuple(instance.generation, instance.slot, instance.view);
}

void Oracle::Changed(int primary, const StoredChunk& chunk, const ChunkChange& change) {
  Instance& instance = instances_[primary];
  ChunkHistory& history = instance.chunks.at(chunk.info().id);
  const ChunkState before = history.After(history.changes.size());
  ChangeRecord record{.state = ChunkState::Of(chunk),
                      .iteration = before.clock.iteration,
                      .rate = change.rate,
                      .workers = {change.workers.begin(), change.workers.end()}};
  if (!sync_ && !change.workers.empty()) {
    record.iteration = record.state.clock.next_iteration[change.workers[0]] - 1;
  }
  ++coverage_.changes;
  std::string wrong = CheckClock(before, record.state, change);
  if (wrong.empty()) {
    wrong = CheckUpdate(instance, chunk, before, record.state, change.scale, &record);
  }
  if (wrong.empty() && config_.has_quorum()) wrong = CheckQuorum(instance.generation, record);
  if (!wrong.empty()) {
    Violated(absl::StrCat("ps ", instance.process, ", slot ", instance.slot, ", chunk ",
                          chunk.info().id, " changes from ", before.Describe(), " to ",
                          record.state.Describe(), " with iteration ", change.rate.iteration,
                          " of workers ", absl::StrJoin(change.workers, " "), ": ", wrong));
  }
  history.changes.push_back(std::move(record));
}

std::string Oracle::CheckClock(const ChunkState& before, const ChunkState& after,
                               const ChunkChange& change) const {
  const std::set<uint32_t> once(change.workers.begin(), change.workers.end());
  if (once.size() != change.workers.size()) return "a worker counts twice";
  ChunkClock expected = before.clock;
  expected.norms = after.clock.norms;  // see CheckUpdate
  const std::optional<Assignment>& assigned = change.rate.assigned;
  if (!change.gradient.empty()) {
    if (!assigned.has_value() || assigned->array == 0) ++expected.version;
    if (!assigned.has_value()) ++expected.steps;
    if (assigned.has_value() && assigned->array > 0) expected.steps = assigned->steps;
  }
  const auto trained = static_cast<uint64_t>(change.rate.iteration);
  if (sync_) {
    if (trained != before.clock.trained()) return "it is another iteration's turn";
    ++expected.iteration;
    expected.CountExchange(assigned.has_value());
    // Only there is anything pushed as absent.
    expected.all_absent = assigned.has_value() && change.gradient.empty();
  } else {
    if (change.workers.size() != 1) return "not one worker counts";
    uint64_t& next = expected.next_iteration[change.workers[0]];
    if (after.clock.next_iteration[change.workers[0]] <= next) {
      return "the push has been counted before";
    }
    next = after.clock.next_iteration[change.workers[0]];
    if (assigned.has_value() && !change.gradient.empty()) expected.CountExchange(true);
  }
  return expected == after.clock ? "" : "the clock is wrong";
}

std::string Oracle::CheckUpdate(const Instance& instance, const StoredChunk& chunk,
                                const ChunkState& before, const ChunkState& after, float scale,
                                ChangeRecord* record) {
  const uint32_t id = chunk.info().id;
  std::vector<std::vector<Counted>> candidates;
  size_t combinations = 1;
  for (const uint32_t rank : record->workers) {
    const auto found = pushes_.find({instance.generation, rank, record->iteration, id});
    if (found == pushes_.end()) {
      return absl::StrCat("worker ", rank, " has not pushed that in ",
                          instance.generation.ToString());
    }
    std::vector<Counted>& counted = candidates.emplace_back();
    for (const PushRecord& push : found->second) {
      AppendCounted(instance.generation, chunk.info(), before.clock, *record, push, &counted);
    }
    combinations *= counted.size();
  }
  ParameterStore& scratch = *scratch_[instance.slot];
  StoredChunk& copy = scratch.chunks()[scratch.IndexOf(id)];
  absl::MutexLock lock(&copy.mutex);
  const bool is_clipped =
      config_.clips_mean() && !record->rate.assigned.has_value() &&
      config_.model().tensors()[chunk.info().tensor].role == TensorRole::kParameter;
  for (size_t combination = 0; combination < std::min<size_t>(combinations, 256); ++combination) {
    std::vector<float> sum(chunk.info().size, 0);
    float weights = 0;
    int limited = 0;
    std::vector<double> norms = before.clock.norms;
    record->shares.clear();
    size_t rest = combination;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Counted& counted = candidates[i][rest % candidates[i].size()];
      rest /= candidates[i].size();
      record->shares.push_back(counted.push->share);
      if (counted.push->skip) continue;
      weights += counted.push->weight;
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += counted.gradient[j];
      limited += counted.is_limited ? 1 : 0;
      if (counted.norm == 0) continue;
      double& mean = norms[record->workers[i]];
      mean = mean == 0 ? counted.norm : mean + (counted.norm - mean) / 16;
    }
    if (norms != after.clock.norms) continue;
    std::vector<float> arrays = before.arrays;
    arrays.insert(arrays.end(), before.sent.begin(), before.sent.end());
    if (!copy.SetState(before.clock, before.sent_versions, BytesOf(arrays)).ok()) {
      return "it has another size";
    }
    const UpdateRate& rate = record->rate;
    float mean = 1.0f / weights;
    if (!sync_ &&
        config_.model().tensors()[chunk.info().tensor].role == TensorRole::kRunningStatistic) {
      mean /= static_cast<float>(config_.workers());
    }
    if (weights > 0 &&
        !copy.ApplyGradient(BytesOf(sum), FLOAT32, is_clipped ? scale : mean, rate).ok()) {
      continue;
    }
    if (!ChunkState::Of(copy).HasBitsOf(after)) continue;
    coverage_.limited += limited;
    if (is_clipped && weights > 0) {
      record->coefficient = double{scale} / mean;
      for (const float element : sum) record->squares += std::pow(double{mean * element}, 2);
    }
    if (config_.IsInitial(record->iteration) && weights > 0 &&
        !std::equal(sum.begin(), sum.end(), after.arrays.begin())) {
      return "these are not the parameters that worker 0 gave to begin with";
    }
    const bool is_corrected =
        copy.sent().are_kept() && weights > 0 && !record->rate.assigned.has_value();
    return is_corrected ? CheckSent(before, *record, *candidates[0][combination].push, copy.sent())
                        : "";
  }
  return "the workers' gradients give other bits, or other means of their norms";
}

void Oracle::CopyConfirmed(int primary, StoredChunk& chunk) {
  ++coverage_.confirmed;
  const Instance& instance = instances_[primary];
  const ChunkHistory& history = instance.chunks.at(chunk.info().id);
  absl::ReaderMutexLock lock(&chunk.mutex);
  const ChunkState state = ChunkState::Of(chunk);
  const std::string what = absl::StrCat("the copy of slot ", instance.slot, " confirms chunk ",
                                        chunk.info().id, " at ", state.Describe());
  for (size_t i = history.changes.size() + 1; i-- > 0;) {
    if (history.After(i).clock != state.clock) continue;
    if (!history.After(i).HasBitsOf(state)) Violated(absl::StrCat(what, " with other bits"));
    return;
  }
  Violated(absl::StrCat(what, ", which its primary never had"));
}

void Oracle::Pushed(GenerationId generation, uint32_t rank, uint64_t iteration, uint32_t chunk,
                    PushRecord push) {
  std::vector<PushRecord>& pushes = pushes_[{generation, rank, iteration, chunk}];
  if (std::find(pushes.begin(), pushes.end(), push) == pushes.end()) {
    pushes.push_back(std::move(push));
  } else {
    ++coverage_.repeats;
  }
}

void Oracle::Answered(int primary, GenerationId generation, uint32_t rank, uint64_t incarnation,
                      const ParameterHeader& header, absl::Span<const float> parameters,
                      bool contributes) {
  if (config_.has_quorum() && contributes) {
    Told(generation, rank, header.iteration, /*counts=*/true);
  }
  const uint32_t chunk = header.chunk;
  const uint64_t version = header.version;
  Instance& instance = instances_[primary];
  const std::string what = absl::StrCat("worker ", rank, " is told version ", version, " of chunk ",
                                        chunk, " by ps ", instance.process);
  if (instance.generation != generation) {
    return Violated(
        absl::StrCat(what, " of ", instance.generation.ToString(), " in ", generation.ToString()));
  }
  ChunkHistory& history = instance.chunks.at(chunk);
  // With skips, several states have the same version and bits. The first one will do.
  size_t after = 0;
  while (after <= history.changes.size() && history.After(after).clock.version != version) ++after;
  if (after > history.changes.size()) {
    return Violated(absl::StrCat(what, ", which it never had"));
  }
  if (config_.proto().exchange().parameter_encoding() == FLOAT32 &&
      std::memcmp(history.After(after).arrays.data(), parameters.data(),
                  parameters.size() * sizeof(float)) != 0) {
    return Violated(absl::StrCat(what, " with other bits"));
  }
  if (!sync_) {
    // A skip changes the clock and not the version. The bound is judged by the latest such state.
    size_t shown = after;
    while (shown < history.changes.size() && history.After(shown + 1).clock.version == version) {
      ++shown;
    }
    const std::string missing =
        MissingUpdate(generation, header.iteration, history.After(shown).clock);
    if (!missing.empty())
      return Violated(absl::StrCat(what, " in answer to iteration ", header.iteration, missing));
    after = 0;
    while (history.After(after).clock.next_iteration[rank] <= header.iteration) {
      if (after++ < history.changes.size()) continue;
      return Violated(absl::StrCat(what, " in answer to iteration ", header.iteration,
                                   ", which was not counted"));
    }
  }
  if (after > history.length()) {
    return Violated(absl::StrCat(what, " in answer to iteration ", header.iteration,
                                 ", which the slot's next primary does not have"));
  }
  history.acknowledged = std::max(history.acknowledged, after);
  uint64_t& told = told_[{generation, sync_ ? 0 : primary, incarnation, chunk}];
  if (version < told) {
    return Violated(absl::StrCat(what, " after version ", told));
  }
  told = version;
}

std::string Oracle::MissingUpdate(GenerationId generation, uint64_t iteration,
                                  const ChunkClock& shown) {
  if (!staleness_.has_value() || iteration < *staleness_) return "";
  const uint64_t least = iteration + 1 - *staleness_;
  for (uint32_t other = 0; other < shown.next_iteration.size(); ++other) {
    if (left_.contains({generation, other})) continue;
    ++coverage_.bounded;
    if (shown.next_iteration[other] >= least) continue;
    return absl::StrCat(", without the update of worker ", other, " at iteration ", least - 1,
                        ", with staleness ", *staleness_);
  }
  return "";
}

void Oracle::WasRead(int primary, uint64_t k, uint32_t chunk, uint64_t version,
                     absl::Span<const float> parameters) {
  ++coverage_.reads;
  const ChunkHistory& history = instances_[primary].chunks.at(chunk);
  const std::string what =
      absl::StrCat("a reader of iteration ", k, " is given version ", version, " of chunk ", chunk);
  for (size_t i = 0; i <= history.changes.size(); ++i) {
    const ChunkState& state = history.After(i);
    if (sync_ ? state.clock.iteration != k : state.clock.version != version) continue;
    if (state.clock.version != version || (!sync_ && version < k)) break;
    if (std::memcmp(state.arrays.data(), parameters.data(), parameters.size() * sizeof(float)) == 0)
      return;
    return Violated(what + " with other bits");
  }
  Violated(what + ", which is not of that iteration");
}

void Oracle::CheckpointCompleted(const CheckpointId& id) {
  complete_[id] = run_;
  ++coverage_.checkpoints;
}

std::optional<CheckpointId> Oracle::NewestCheckpoint() const {
  if (complete_.empty()) return std::nullopt;
  return complete_.rbegin()->first;
}

void Oracle::ViewBegan(const View& view, bool reads_newest) {
  std::string newest;
  for (const auto& [id, run] : complete_) {
    const std::string name = id.ToString();
    if (!damaged_.contains(id) || view.checkpoint() == name) newest = name;
  }
  for (const SlotView& slot : view.slot()) coverage_.handovers += slot.handing_over() ? 1 : 0;
  const bool is_next = view.generation() == view_.generation() && view.run() == view_.run();
  for (int slot = 0; slot < view_.slot_size() && is_next; ++slot) {
    if (!view_.slot(slot).handing_over() || !view.slot(slot).has_replica() ||
        view.slot(slot).replica().incarnation() != view_.slot(slot).primary().incarnation()) {
      continue;
    }
    handed_over_.emplace(Generation(view.generation()), slot, view.number());
  }
  view_ = view;
  for (int rank = 0; rank < view.worker_size(); ++rank) {
    const WorkerView::State state = view.worker(rank).state();
    if (state == WorkerView::LOST || state == WorkerView::FINISHED) {
      Left(Generation(view.generation()), rank);
    }
  }
  if (view.worker_set_changes()) {
    for (const WorkerView& worker : view.worker()) {
      coverage_.losses += worker.state() == WorkerView::LEAVING ? 1 : 0;
      coverage_.joins += worker.state() == WorkerView::JOINING ? 1 : 0;
    }
  }
  worker_sets_[Generation(view.generation())] = view.worker_set();
  if (config_.proto().update().max_norm() > 0) {
    View workers;
    *workers.mutable_worker_set() = view.worker_set();
    *workers.mutable_worker() = view.worker();
    std::vector<View>& views = views_[Generation(view.generation())];
    const std::string text = workers.SerializeAsString();
    if (views.empty() || views.back().SerializeAsString() != text) views.push_back(workers);
  }
  if (!origins_.emplace(Generation(view.generation()), std::nullopt).second) return;
  if (!reads_newest || view.checkpoint() == newest) return;
  Violated(absl::StrCat(Generation(view.generation()).ToString(), " begins from \"",
                        view.checkpoint(), "\", and the newest complete checkpoint is \"", newest,
                        "\""));
}

void Coverage::Add(const Coverage& other) {
  changes += other.changes;
  lost_changes += other.lost_changes;
  takeovers += other.takeovers;
  handovers += other.handovers;
  confirmed += other.confirmed;
  checkpoints += other.checkpoints;
  restored += other.restored;
  begun_anew += other.begun_anew;
  losses += other.losses;
  joins += other.joins;
  repeats += other.repeats;
  reads += other.reads;
  mixed += other.mixed;
  forgotten += other.forgotten;
  norms += other.norms;
  limited += other.limited;
  bounded += other.bounded;
  dropped += other.dropped;
  corrected += other.corrected;
  uncorrected += other.uncorrected;
}

std::string Coverage::ToString() const {
  return absl::StrCat(
      changes, " changes of chunks, of which ", lost_changes, " were lost unacknowledged; ",
      takeovers, " takeovers, ", handovers, " handovers; ", confirmed, " messages to copies; ",
      checkpoints, " checkpoints, ", restored, " slots restored, ", begun_anew,
      " times begun anew; ", losses, " workers left, ", joins, " joined; ", repeats,
      " pushes repeated, ", reads, " chunks read, ", mixed,
      " iterations with parts updated already, ", norms, " norms, ", limited,
      " limited gradients, ", bounded, " bounds of staleness, ", dropped, " pushes dropped, ",
      corrected, " stale gradients corrected, ", uncorrected, " not");
}

}  // namespace evenshard
