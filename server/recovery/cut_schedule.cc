#include "server/recovery/cut_schedule.h"

#include "common/config/config_contract.h"

namespace evenshard {

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

}  // namespace evenshard
