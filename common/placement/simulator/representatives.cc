#include "common/placement/simulator/representatives.h"

#include <map>
#include <utility>

namespace evenshard {

Representatives RepresentativesOf(const ClusterRates& rates, int most, int singular) {
  struct Class {
    std::vector<int> representatives;
    int workers = 0;
  };
  std::map<std::pair<double, double>, Class> classes;  // by link and slowdown
  Representatives result;
  for (int rank = 0; rank < static_cast<int>(rates.worker_link.size()); ++rank) {
    if (rank < singular) {
      result.of_rank.push_back(result.ranks.size());
      result.ranks.push_back(rank);
      result.members.push_back(1);
      continue;
    }
    Class& of_worker = classes[{rates.worker_link[rank], rates.worker_slowdown[rank]}];
    if (of_worker.workers < most) {
      of_worker.representatives.push_back(result.ranks.size());
      result.ranks.push_back(rank);
      result.members.push_back(0);
    }
    const int representative = of_worker.representatives[of_worker.workers++ % most];
    ++result.members[representative];
    result.of_rank.push_back(representative);
  }
  return result;
}

}  // namespace evenshard
