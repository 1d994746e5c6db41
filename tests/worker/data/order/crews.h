#ifndef EVENSHARD_TESTS_WORKER_DATA_ORDER_CREWS_H_
#define EVENSHARD_TESTS_WORKER_DATA_ORDER_CREWS_H_

#include <cstdint>
#include <vector>

#include "proto/view.pb.h"

namespace evenshard {

inline Crew CrewFrom(int64_t from_iteration, const std::vector<int>& ranks) {
  Crew crew;
  crew.set_from_iteration(from_iteration);
  for (const int rank : ranks) crew.add_rank(rank);
  return crew;
}

// Returns the crew of all ranks below `workers`.
inline Crew CrewOfAll(int workers) {
  Crew crew;
  for (int rank = 0; rank < workers; ++rank) crew.add_rank(rank);
  return crew;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_DATA_ORDER_CREWS_H_
