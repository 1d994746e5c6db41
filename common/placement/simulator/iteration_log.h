#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_ITERATION_LOG_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_ITERATION_LOG_H_

#include <vector>

#include "common/placement/simulator/simulation.h"

namespace evenshard {

// When the iterations of a simulation end, and what they contribute. Not thread-safe.
class IterationLog {
 public:
  explicit IterationLog(int iterations) : iterations_(iterations) {}

  int iterations() const { return static_cast<int>(iterations_.size()); }
  // How many workers must end an iteration before it is over.
  void Expect(int iteration, int workers) { iterations_[iteration].expected = workers; }
  // A worker ends an iteration, also one after the last that is expected.
  void End(int iteration, double now, double batches);
  // Whether the last iteration is over.
  bool is_over() const { return iterations_.back().expected == 0; }

  // Writes what was recorded to a simulation.
  void CopyTo(Simulation* simulation) const;

 private:
  static constexpr int kUnknown = -1;
  struct Iteration {
    int expected = kUnknown;  // workers that have not ended it
    double end = 0;
    double batches = 0;  // of all workers until then
  };

  std::vector<Iteration> iterations_;
  double batches_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_ITERATION_LOG_H_
