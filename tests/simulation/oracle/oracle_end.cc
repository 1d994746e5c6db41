// What is checked when the run has succeeded: the line of history that led to the end.

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/control/view/worker_set.h"
#include "tests/simulation/oracle/oracle.h"

namespace evenshard {

std::vector<Oracle::Step> Oracle::WholeLine(GenerationId generation, uint32_t chunk) const {
  std::vector<Step> whole;
  const auto origin = origins_.find(generation);
  if (origin != origins_.end() && origin->second.has_value()) {
    whole = WholeLine(origin->second->first, chunk);
    // What came after the checkpoint is not in the line.
    const auto line = Line(generation, config_.plan().chunks()[chunk].shard);
    const ChunkClock& cut = line.front()->chunks.at(chunk).first.clock;
    while (!whole.empty() && whole.back().change->state.Written() != cut) whole.pop_back();
  }
  for (const Instance* instance : Line(generation, config_.plan().chunks()[chunk].shard)) {
    const ChunkHistory& history = instance->chunks.at(chunk);
    for (size_t i = 0; i < history.length(); ++i) {
      whole.push_back({generation, &history.changes[i]});
    }
  }
  return whole;
}

std::vector<std::vector<ChangeRecord>> Oracle::FinalHistory() const {
  std::vector<std::vector<ChangeRecord>> history;
  if (worker_sets_.empty()) return history;
  for (const Chunk& chunk : config_.plan().chunks()) {
    auto& changes = history.emplace_back();
    for (const Step& step : WholeLine(worker_sets_.rbegin()->first, chunk.id)) {
      changes.push_back(*step.change);
    }
  }
  return history;
}

void Oracle::RunFinished(const View& last, uint64_t iterations) {
  for (const Chunk& chunk : config_.plan().chunks()) {
    if (violation_.empty()) CheckCounts(Generation(last.generation()), iterations, chunk.id);
  }
  if (violation_.empty() && sync_ && !config_.is_from_workers()) CheckEpochs(last);
  if (violation_.empty() && config_.has_quorum()) {
    CheckSets(Generation(last.generation()), iterations);
  }
  if (violation_.empty() && config_.clips_mean()) {
    CheckNorms(Generation(last.generation()), iterations);
  }
}

void Oracle::CheckNorms(GenerationId last, uint64_t iterations) {
  std::vector<std::vector<Step>> lines;
  for (const Chunk& chunk : config_.plan().chunks()) lines.push_back(WholeLine(last, chunk.id));
  for (uint64_t i = 0; i < iterations; ++i) {
    std::optional<double> coefficient;
    double squares = 0;
    bool is_undisturbed = true;
    for (size_t chunk = 0; chunk < lines.size(); ++chunk) {
      const auto& [generation, change] = lines[chunk][i];
      if (!change->coefficient.has_value()) continue;
      if (!coefficient.has_value()) coefficient = change->coefficient;
      if (std::abs(*change->coefficient / *coefficient - 1) > 1e-6) {
        return Violated(absl::StrCat("iteration ", i, ": chunk ", chunk, " is clipped by ",
                                     *change->coefficient, ", others by ", *coefficient));
      }
      squares += change->squares;
      is_undisturbed &= Line(generation, config_.plan().chunks()[chunk].shard).size() == 1;
    }
    if (!coefficient.has_value() || !is_undisturbed) continue;
    ++coverage_.norms;
    const double limit = config_.proto().update().clip_global_norm();
    const double expected = std::min(1.0, limit / (std::sqrt(squares) + 1e-6));
    if (std::abs(*coefficient / expected - 1) > 1e-5) {
      return Violated(
          absl::StrCat("iteration ", i, " is clipped by ", *coefficient, " and not by ", expected));
    }
  }
}

void Oracle::CheckCounts(GenerationId last, uint64_t iterations, uint32_t chunk) {
  const std::vector<Step> line = WholeLine(last, chunk);
  if (!sync_) {
    std::vector<uint64_t> next(config_.workers(), 0);
    for (const auto& [generation, change] : line) {
      uint64_t& worker = next[change->workers[0]];
      if (change->iteration < worker) {
        return Violated(absl::StrCat("chunk ", chunk, " counts iteration ", change->iteration,
                                     " of worker ", change->workers[0], " twice"));
      }
      worker = change->iteration + 1;
    }
    return;
  }
  if (line.size() != iterations) {
    return Violated(
        absl::StrCat("chunk ", chunk, " has ", line.size(), " iterations, not ", iterations));
  }
  for (uint64_t i = 0; i < line.size(); ++i) {
    const auto& [generation, change] = line[i];
    if (change->iteration != i) {
      return Violated(absl::StrCat("chunk ", chunk, " has iteration ", change->iteration,
                                   " in the place of ", i));
    }
    // Going back may take a worker in again at the iteration at which it was lost, so that later
    // worker sets do not tell any more for whom this iteration did not wait.
    const WorkerSetHistory& worker_set = worker_sets_.at(generation);
    const std::set<uint32_t> counted(change->workers.begin(), change->workers.end());
    for (int r = 0; r < config_.workers(); ++r) {
      const uint32_t rank = static_cast<uint32_t>(r);
      const bool counts = counted.contains(rank);
      const bool may_lack = config_.has_quorum() || !IsWaitedFor(worker_set, rank, i);
      if (counts ? IsInWorkerSet(worker_set, rank, i) : may_lack) continue;
      return Violated(absl::StrCat(
          "chunk ", chunk, ", iteration ", i, counts ? " counts" : " lacks", " worker ", rank,
          ", against the worker set; it has ", absl::StrJoin(counted, " ")));
    }
  }
}

void Oracle::CheckEpochs(const View& last) {
  const Training& training = config_.proto().training();
  const int64_t batch = training.batch_size();
  const int64_t images = config_.proto().data().synthetic().images();
  // Where an epoch stands: the worker sets consume it in order, and leave out only what is too
  // little for one more iteration, and the batch in flight of a worker that was lost.
  int64_t epoch = 0;
  int64_t position = 0;
  const auto line = WholeLine(Generation(last.generation()), 0);
  for (size_t i = 0; i < line.size(); ++i) {
    const int64_t all = batch * static_cast<int64_t>(WorkerSetAt(last.worker_set(), i).size());
    if (position + all > images) {
      ++epoch;
      position = 0;
    }
    std::set<int64_t> read;
    const ChangeRecord& change = *line[i].change;
    for (size_t j = 0; j < change.workers.size(); ++j) {
      const auto& share = change.shares[j];
      if (!share.has_value()) continue;
      const std::string what =
          absl::StrCat("worker ", change.workers[j], " reads, in iteration ", i, ", ");
      if (share->epoch != epoch) {
        return Violated(absl::StrCat(what, "epoch ", share->epoch, " instead of ", epoch));
      }
      for (int64_t k = 0; k < batch; ++k) {
        const int64_t image = share->first + k * share->stride;
        if (image < position || image >= position + all || !read.insert(image).second) {
          return Violated(absl::StrCat(what, "image ", image, " of epoch ", epoch,
                                       ", which is not its own; this iteration has those from ",
                                       position, " to ", position + all - 1));
        }
      }
    }
    position += all;
  }
}

}  // namespace evenshard
