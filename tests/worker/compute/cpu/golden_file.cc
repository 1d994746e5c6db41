#include "tests/worker/compute/cpu/golden_file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <utility>

namespace evenshard {

GoldenFile ReadGoldenFile(const std::string& name) {
  const std::string path = "tests/golden/" + name + ".golden";
  INFO(path);
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  GoldenFile golden;
  std::vector<std::pair<std::string, size_t>> tensors;  // name and elements, in file order
  std::string line;
  while (std::getline(file, line) && line != "end") {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "golden") {
      REQUIRE(line == "golden 1");
    } else if (key == "model") {
      std::getline(words, golden.model);
    } else if (key == "loss") {
      words >> golden.loss;
    } else if (key == "correct") {
      words >> golden.correct;
    } else if (key == "evaluation_loss") {
      words >> golden.evaluation_loss;
    } else if (key == "evaluation_correct") {
      words >> golden.evaluation_correct;
    } else if (key == "labels") {
      for (int32_t label; words >> label;) golden.labels.push_back(label);
    } else {
      REQUIRE(key == "tensor");
      std::string tensor;
      words >> tensor;
      size_t elements = 1;
      for (size_t dimension; words >> dimension;) elements *= dimension;
      tensors.emplace_back(tensor, elements);
    }
  }
  for (const auto& [tensor, elements] : tensors) {
    std::vector<float>& values = golden.tensors[tensor];
    values.resize(elements);
    file.read(reinterpret_cast<char*>(values.data()), elements * sizeof(float));
  }
  REQUIRE(file);
  REQUIRE(file.peek() == std::ifstream::traits_type::eof());
  return golden;
}

}  // namespace evenshard
