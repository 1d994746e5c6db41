// What QUORUM promises.

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/control/view/worker_set.h"
#include "tests/simulation/oracle/oracle.h"

namespace evenshard {

std::string Oracle::CheckQuorum(GenerationId generation, const ChangeRecord& record) const {
  for (const uint32_t rank : record.workers) {
    if (misread_.contains({generation, rank, record.iteration})) {
      return absl::StrCat("worker ", rank, " computed from the parameters of another iteration");
    }
    const auto told = told_counts_.find({generation, rank, record.iteration});
    if (told != told_counts_.end() && !told->second) {
      return absl::StrCat("worker ", rank, " was told that its gradient is dropped");
    }
  }
  const auto worker_set = worker_sets_.find(generation);
  if (worker_set == worker_sets_.end()) return "";
  size_t training = 0;
  for (const uint32_t rank : WorkerSetAt(worker_set->second, record.iteration)) {
    training += IsWaitedFor(worker_set->second, rank, record.iteration) &&
                        !left_.contains({generation, rank})
                    ? 1
                    : 0;
  }
  const size_t needed = std::min<size_t>(config_.proto().update().quorum(), training);
  return record.workers.size() >= needed
             ? ""
             : absl::StrCat("fewer than ", needed, " workers are in the update");
}

void Oracle::Told(GenerationId generation, uint32_t rank, uint64_t iteration, bool counts) {
  const auto [told, is_first] = told_counts_.try_emplace({generation, rank, iteration}, counts);
  if (is_first || told->second == counts) return;
  Violated(absl::StrCat("worker ", rank, " is told that its gradient of iteration ", iteration,
                        " counts, and that it is dropped"));
}

void Oracle::Dropped(GenerationId generation, uint32_t rank, const ParameterHeader& header) {
  ++coverage_.dropped;
  Told(generation, rank, header.iteration, /*counts=*/false);
}

void Oracle::Computes(GenerationId generation, uint32_t rank, uint64_t iteration,
                      const std::vector<std::vector<float>>& parameters) {
  if (!config_.has_quorum() || config_.proto().exchange().parameter_encoding() != FLOAT32) return;
  for (uint32_t chunk = 0; chunk < parameters.size(); ++chunk) {
    const ChunkState* const state = Find(generation, chunk, [&](const ChunkState& each) {
      return each.clock.iteration == iteration;
    });
    if (state != nullptr && std::memcmp(state->arrays.data(), parameters[chunk].data(),
                                        parameters[chunk].size() * sizeof(float)) == 0) {
      continue;
    }
    misread_.emplace(generation, rank, iteration);
    return;
  }
  // One that had read something else before has started again.
  misread_.erase({generation, rank, iteration});
}

void Oracle::CheckSets(GenerationId last, uint64_t iterations) {
  std::vector<std::vector<Step>> lines;
  for (const Chunk& chunk : config_.plan().chunks()) lines.push_back(WholeLine(last, chunk.id));
  for (uint64_t i = 0; i < iterations; ++i) {
    std::set<uint32_t> all;
    for (const std::vector<Step>& line : lines) {
      all.insert(line[i].change->workers.begin(), line[i].change->workers.end());
    }
    for (size_t chunk = 0; chunk < lines.size(); ++chunk) {
      const auto& [generation, change] = lines[chunk][i];
      const std::set<uint32_t> counted(change->workers.begin(), change->workers.end());
      for (const uint32_t rank : all) {
        // A chunk does not wait for one whose push the others had when it was lost.
        if (counted.contains(rank) || !IsWaitedFor(worker_sets_.at(generation), rank, i)) continue;
        return Violated(absl::StrCat("iteration ", i, ": worker ", rank,
                                     " counts for some chunks, and not for chunk ", chunk));
      }
      for (int rank = 0; rank < config_.workers(); ++rank) {
        const auto told = told_counts_.find({generation, rank, i});
        if (told == told_counts_.end() || told->second == counted.contains(rank)) continue;
        return Violated(absl::StrCat("iteration ", i, ", chunk ", chunk, ": worker ", rank,
                                     told->second ? " does not count" : " counts",
                                     ", against what it was told"));
      }
    }
  }
}

}  // namespace evenshard
