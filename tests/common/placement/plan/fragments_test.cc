#include "common/placement/plan/fragments.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/common/placement/plan/model_fixture.h"

namespace evenshard {
namespace {

using Fragments = std::vector<std::vector<int>>;

TEST_CASE("the largest layers go first into the fragments that have least") {
  const Model model = ModelOf(R"(
      input { channels: 4 height: 1 width: 1 }
      layer { name: "a" linear { out_features: 10 } }  # 50 elements
      layer { relu {} }
      layer { name: "b" linear { out_features: 8 } }   # 88
      layer { name: "c" linear { out_features: 3 } }   # 27
      layer { name: "d" linear { out_features: 5 } }   # 20
  )");
  CHECK(FragmentsOf(model, 1) == Fragments{{0, 2, 3, 4}});
  CHECK(FragmentsOf(model, 2) == Fragments{{2}, {0, 3, 4}});
  CHECK(FragmentsOf(model, 3) == Fragments{{2}, {0}, {3, 4}});
}

TEST_CASE("fragments of a model without a very large layer are about equal") {
  const Model model = ModelOf("builtin: 'resnet50'");
  const Fragments fragments = FragmentsOf(model, 4);
  std::vector<int64_t> elements;
  size_t layers = 0;
  for (const std::vector<int>& fragment : fragments) {
    int64_t sum = 0;
    for (const int layer : fragment) sum += model.layers()[layer].elements;
    elements.push_back(sum);
    layers += fragment.size();
    CHECK(std::is_sorted(fragment.begin(), fragment.end()));
  }
  const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
  CHECK(*most <= *least * 1.01);
  CHECK(layers == static_cast<size_t>(
                      std::count_if(model.layers().begin(), model.layers().end(),
                                    [](const Layer& layer) { return layer.tensor_count > 0; })));
}

}  // namespace
}  // namespace evenshard
