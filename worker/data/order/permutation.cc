#include "worker/data/order/permutation.h"

#include <numeric>
#include <utility>

namespace evenshard {

std::vector<uint32_t> Permutation(int64_t size, const CounterRandom& random) {
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) std::swap(order[i], order[random.Below(i, i + 1)]);
  return order;
}

}  // namespace evenshard
