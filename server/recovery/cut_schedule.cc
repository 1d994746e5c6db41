#include "server/recovery/cut_schedule.h"

#include <algorithm>

#include "common/config/config_contract.h"

namespace evenshard {
namespace {

// How often one is due by the clock at most. A slot that called Tick more rarely would leave out
// numbers, and each slot others.
constexpr double kShortest = 0.2;

}  // namespace

bool IsCutAt(const ClusterConfig& config, const View& view, const ChunkClock& clock) {
  const Recovery::Checkpoint& settings = config.recovery().checkpoint();
  if (!settings.has_every_iterations()) return clock.iteration == view.cut_iteration();
  return clock.recent_assignments == 0 && clock.trained() % settings.every_iterations() == 0;
}

Cut CutAt(const View& view, const ChunkClock& clock) {
  return {.id = {.generation = view.generation(),
                 .iteration = clock.trained(),
                 .assignments = clock.recent_assignments},
          .exchange = clock.iteration,
          .run = view.run()};
}

uint64_t NumberOfCut(const ClusterConfig& config, const View& view, const Cut& cut) {
  if (!IsSynchronous(config.update())) return cut.exchange;
  const Recovery::Checkpoint& settings = config.recovery().checkpoint();
  return settings.has_every_iterations() ? cut.id.iteration / settings.every_iterations()
                                         : view.cuts();
}

uint64_t NumberByClock(const ClusterConfig& config, absl::Time now) {
  const double every = std::max(config.recovery().checkpoint().every_seconds(), kShortest);
  return static_cast<uint64_t>(absl::ToDoubleSeconds(now - absl::UnixEpoch()) / every);
}

uint64_t LastNumberByClock(const ClusterConfig& config, absl::Time now) {
  const int64_t minutes = absl::ToUnixSeconds(now) / 60 + 1;
  return NumberByClock(config, absl::FromUnixSeconds(60 * minutes)) + 1;
}

Cut CutByClock(const View& view, uint64_t number) {
  return {.id = {.generation = view.generation(), .iteration = number},
          .exchange = number,
          .run = view.run()};
}

}  // namespace evenshard
