#include "tests/simulation/made_up_gradients.h"

#include <cstring>

#include "common/base/random.h"

namespace evenshard {
namespace {

constexpr uint64_t kSteps = 100;

}  // namespace

void MakeUpGradients(const std::vector<std::vector<float>>& parameters, int rank,
                     uint64_t iteration, const std::optional<Dealing::Share>& share,
                     std::vector<std::vector<float>>* gradients) {
  uint64_t seed = 14695981039346656037u;
  const auto mix = [&](uint64_t value) { seed = (seed ^ value) * 1099511628211u; };
  for (const std::vector<float>& chunk : parameters) {
    for (const float parameter : chunk) {
      uint32_t bits;
      std::memcpy(&bits, &parameter, sizeof(bits));
      mix(bits);
    }
  }
  mix(rank);
  mix(iteration);
  mix(share.has_value() ? 1 + share->epoch : 0);
  mix(share.has_value() ? share->first : 0);
  for (size_t id = 0; id < gradients->size(); ++id) {
    const CounterRandom random(seed, id);
    std::vector<float>& gradient = (*gradients)[id];
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] =
          (static_cast<float>(random.Below(i, 2 * kSteps + 1)) - static_cast<float>(kSteps)) / 64;
    }
  }
}

}  // namespace evenshard
