#ifndef EVENSHARD_TESTS_WORKER_DATA_ORDER_WORKER_SETS_H_
#define EVENSHARD_TESTS_WORKER_DATA_ORDER_WORKER_SETS_H_

#include <cstdint>
#include <vector>

#include "proto/view.pb.h"

namespace evenshard {

inline WorkerSet WorkerSetFrom(int64_t from_iteration, const std::vector<int>& ranks) {
  WorkerSet worker_set;
  worker_set.set_from_iteration(from_iteration);
  for (const int rank : ranks) worker_set.add_rank(rank);
  return worker_set;
}

// Returns the worker set of all ranks below `workers`.
inline WorkerSet WorkerSetOfAll(int workers) {
  WorkerSet worker_set;
  for (int rank = 0; rank < workers; ++rank) worker_set.add_rank(rank);
  return worker_set;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_DATA_ORDER_WORKER_SETS_H_
