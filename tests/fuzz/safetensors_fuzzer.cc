// libFuzzer target: a safetensors file of any origin, from which a run takes its initial
// parameters. Every tensor that is found lies within the file, and what is read is finite.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/checkpoint/initial_parameters.h"
#include "common/checkpoint/safetensors.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr char kPath[] = "/f/fuzzed.safetensors";

const PlannedConfig& FuzzedConfig() {
  static const auto* const config = [] {
    auto parsed = PlannedConfig::Parse(R"pb(
                                         model {
                                           input { channels: 2 height: 1 width: 1 }
                                           layer {
                                             name: "fc"
                                             linear { out_features: 2 }
                                           }
                                           initial_parameters: "/f/fuzzed.safetensors"
                                           allow_missing_parameters: true
                                           allow_unused_parameters: true
                                         }
                                         partition { scheme: MEMORY_BASED }
                                         shard { address: "127.0.0.1:7001" }
                                         workers: 1
                                         update { policy: SYNC }
                                         training { iterations: 1 }
                                         compute { backend: EMULATED }
                                       )pb",
                                       "fuzzed.textproto");
    Require(parsed.ok(), parsed.status().message());
    return new PlannedConfig(*std::move(parsed));
  }();
  return *config;
}

void Check(absl::string_view bytes) {
  SimulatedDisk disk;
  (void)disk.MakeFolder("/f");
  Require(WriteWholeFile(&disk, kPath, bytes).ok(), "the file is written");
  const auto file = disk.OpenFile(kPath);
  const auto tensors = ReadSafetensorsHeader(**file, kPath);
  if (!tensors.ok()) return;
  int64_t before = 0;
  for (const StoredTensor& tensor : *tensors) {
    Require(tensor.offset >= before && tensor.bytes >= 0 &&
                tensor.bytes <= (*file)->size() - tensor.offset,
            "a tensor lies within the file");
    before = tensor.offset;
  }
  const auto parameters = InitialParameters::Open(&disk, FuzzedConfig());
  if (!parameters.ok()) return;
  const std::vector<Tensor>& model = FuzzedConfig().model().tensors();
  for (size_t i = 0; i < model.size(); ++i) {
    std::vector<float> values(model[i].size);
    if (!(*parameters)->Fill(static_cast<int>(i), 0, absl::MakeSpan(values)).ok()) continue;
    for (const float value : values) Require(std::isfinite(value), "a parameter is finite");
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  evenshard::Check({reinterpret_cast<const char*>(input), size});
  return 0;
}
