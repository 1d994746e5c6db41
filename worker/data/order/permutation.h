#ifndef EVENSHARD_WORKER_DATA_ORDER_PERMUTATION_H_
#define EVENSHARD_WORKER_DATA_ORDER_PERMUTATION_H_

#include <cstdint>
#include <vector>

#include "common/base/random.h"

namespace evenshard {

// Returns a permutation of 0 .. size - 1, a pure function of (size, random stream). It is made by
// the shuffle of Fisher and Yates (Durstenfeld 1964, algorithm 235). REQUIRES: size < 2^32.
std::vector<uint32_t> Permutation(int64_t size, const CounterRandom& random);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_ORDER_PERMUTATION_H_
