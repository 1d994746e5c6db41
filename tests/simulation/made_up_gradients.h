#ifndef EVENSHARD_TESTS_SIMULATION_MADE_UP_GRADIENTS_H_
#define EVENSHARD_TESTS_SIMULATION_MADE_UP_GRADIENTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/data/order/dealing.h"

namespace evenshard {

// Fills `gradients` (by chunk) with numbers that follow from all parameters, as in a network, and
// from who read what: so whatever is mixed up changes bits. They are multiples of 1/64 of at most
// 100: every encoding has them exactly, and so has a float32 their sum, also with weights that are
// powers of two.
void MakeUpGradients(const std::vector<std::vector<float>>& parameters, int rank,
                     uint64_t iteration, const std::optional<Dealing::Share>& share,
                     std::vector<std::vector<float>>* gradients);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_MADE_UP_GRADIENTS_H_
