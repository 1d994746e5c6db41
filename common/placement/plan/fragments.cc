#include "common/placement/plan/fragments.h"

#include <algorithm>
#include <cstdint>

namespace evenshard {

std::vector<std::vector<int>> FragmentsOf(const Model& model, int fragments) {
  const std::vector<Layer>& layers = model.layers();
  std::vector<int> by_size;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].tensor_count > 0) by_size.push_back(static_cast<int>(layer));
  }
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](int a, int b) { return layers[a].elements > layers[b].elements; });
  std::vector<std::vector<int>> of_fragment(fragments);
  std::vector<int64_t> elements(fragments);
  for (const int layer : by_size) {
    const auto least = std::min_element(elements.begin(), elements.end()) - elements.begin();
    elements[least] += layers[layer].elements;
    of_fragment[least].push_back(layer);
  }
  for (std::vector<int>& of_one : of_fragment) std::sort(of_one.begin(), of_one.end());
  return of_fragment;
}

}  // namespace evenshard
