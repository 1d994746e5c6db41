// libFuzzer target: the model, the optimizer and the rest that worker 0 declares to a ps that waits
// for them. What is taken makes a plan that covers each element once.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/planned_config.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

const PlannedConfig& FuzzedConfig(bool is_striped) {
  static const auto* const configs = [] {
    auto* const made = new std::vector<PlannedConfig>;
    for (const char* const scheme : {"MEMORY_BASED", "STRIPED"}) {
      auto parsed = PlannedConfig::Parse(
          R"pb(
            model { from_workers {} }
            shard { address: "127.0.0.1:7001" }
            shard { address: "127.0.0.1:7002" }
            workers: 2
            update { policy: SYNC }
          )pb",
          "fuzzed.textproto",
          {absl::StrCat("partition.scheme=", scheme), "limits.chunk_bytes=1048576"});
      Require(parsed.ok(), parsed.status().message());
      made->push_back(*std::move(parsed));
    }
    return made;
  }();
  return (*configs)[is_striped ? 1 : 0];
}

void CheckPlan(const PlannedConfig& config) {
  const std::vector<Tensor>& tensors = config.model().tensors();
  std::vector<int64_t> ends(tensors.size());
  for (const Chunk& chunk : config.plan().chunks()) {
    Require(chunk.size > 0 && chunk.begin == ends[chunk.tensor], "chunks are side by side");
    ends[chunk.tensor] += chunk.size;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Require(ends[i] == tensors[i].size, "chunks have all elements of a tensor");
  }
}

void Check(FuzzedDataProvider& input) {
  Declaration declaration;
  for (int i = input.ConsumeIntegralInRange(1, 3); i > 0; --i) {
    auto& tensor = *declaration.mutable_model()->add_tensor();
    tensor.set_name(absl::StrCat("layer.", i, ".weight"));
    tensor.add_shape(input.ConsumeIntegralInRange(1, 70));
    tensor.add_shape(input.ConsumeIntegralInRange(1, 70));
  }
  declaration.mutable_optimizer()->set_kind(OptimizerConfig::SGD);
  declaration.mutable_optimizer()->set_learning_rate(0.1F);
  Vary(input, 6, &declaration);
  const PlannedConfig& config = FuzzedConfig(input.ConsumeBool());
  const absl::StatusOr<PlannedConfig> declared = config.Declared(declaration);
  if (!declared.ok()) {
    Require(!declared.status().message().empty(), "a refusal says why");
    return;
  }
  CheckPlan(*declared);
  // The same again is no other model, and what a worker declares later must be the same.
  Require(declared->Declared(declaration).ok(), "the same declaration once more");
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  evenshard::Check(input);
  return 0;
}
