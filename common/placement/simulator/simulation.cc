#include "common/placement/simulator/simulation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace evenshard {

double Simulation::seconds() const {
  return std::accumulate(iteration_seconds.begin(), iteration_seconds.end(), 0.0);
}

double Simulation::steady_seconds() const {
  std::vector<double> steady(iteration_seconds.begin() + (iteration_seconds.size() > 1 ? 1 : 0),
                             iteration_seconds.end());
  std::sort(steady.begin(), steady.end());
  return (steady[(steady.size() - 1) / 2] + steady[steady.size() / 2]) / 2;
}

bool Simulation::is_steady() const {
  constexpr double kTolerance = 0.01;
  const size_t count = iteration_seconds.size();
  return count >= 2 && std::abs(iteration_seconds[count - 1] - iteration_seconds[count - 2]) <=
                           kTolerance * iteration_seconds[count - 1];
}

double Simulation::batches_per_second(int iteration) const {
  const double seconds =
      std::accumulate(iteration_seconds.begin() + iteration + 1, iteration_seconds.end(), 0.0);
  return (batches.back() - batches[iteration]) / seconds;
}

}  // namespace evenshard
