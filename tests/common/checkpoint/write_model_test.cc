#include "common/checkpoint/write_model.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/checkpoint/initial_parameters.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/config/config_fixture.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

TEST_CASE("a model that was written can be begun from") {
  const ScratchFolder folder;
  const PlannedConfig config =
      Valid(kConfig, {absl::StrCat("model.initial_parameters=", folder.Path("model.safetensors"))});
  std::vector<float> parameters(config.model().buffer_size());
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = 0.5f * static_cast<float>(i);
  REQUIRE(WriteModel(config.model(), parameters, folder.Path("model.safetensors")).ok());
  RealStorage storage;
  const auto initial = InitialParameters::Open(&storage, config);
  INFO(initial.status().ToString());
  REQUIRE(initial.ok());
  for (size_t i = 0; i < config.model().tensors().size(); ++i) {
    const Tensor& tensor = config.model().tensors()[i];
    std::vector<float> read(tensor.size);
    REQUIRE((*initial)->Fill(static_cast<int>(i), 0, absl::MakeSpan(read)).ok());
    CHECK(std::equal(read.begin(), read.end(), parameters.begin() + tensor.offset));
  }
  CHECK(!WriteModel(config.model(), parameters, folder.Path("none/model")).ok());
}

}  // namespace
}  // namespace evenshard
