#include "common/placement/simulator/iteration_log.h"

#include <algorithm>

namespace evenshard {

void IterationLog::End(int iteration, double now, double batches) {
  batches_ += batches;
  if (iteration >= iterations()) return;
  Iteration& ended = iterations_[iteration];
  if (--ended.expected > 0) return;
  ended.end = now;
  ended.batches = batches_;
}

void IterationLog::CopyTo(Simulation* simulation) const {
  Iteration last;
  for (Iteration iteration : iterations_) {
    // Under QUORUM an iteration may end after the next one, for a worker with a slow link.
    iteration.end = std::max(last.end, iteration.end);
    iteration.batches = std::max(last.batches, iteration.batches);
    simulation->iteration_seconds.push_back(iteration.end - last.end);
    simulation->batches.push_back(iteration.batches);
    last = iteration;
  }
}

}  // namespace evenshard
