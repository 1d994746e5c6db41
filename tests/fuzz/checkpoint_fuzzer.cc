// libFuzzer target: a checkpoint from others, whose checksums are right. Records and manifests that
// are read are written and read again as the same; a checkpoint that is opened is read to its end.
//
// The input is the content of a record or of a manifest. The files that it describes are large
// enough, and have zeros.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_record.h"
#include "common/checkpoint/checksum.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr char kFolder[] = "/c";
constexpr CheckpointId kId = {.generation = 1, .iteration = 2};

const PlannedConfig& FuzzedConfig() {
  static const auto* const config = [] {
    auto parsed = PlannedConfig::Parse(R"pb(
                                         model {
                                           input { channels: 2 height: 1 width: 1 }
                                           layer {
                                             name: "fc"
                                             linear { out_features: 3 }
                                           }
                                         }
                                         partition { scheme: STRIPED }
                                         shard { address: "127.0.0.1:7001" }
                                         shard { address: "127.0.0.1:7002" }
                                         workers: 1
                                         update { policy: SYNC }
                                         optimizer { kind: MOMENTUM }
                                         training { iterations: 1 }
                                         compute { backend: EMULATED }
                                         limits { chunk_bytes: 64 }
                                       )pb",
                                       "fuzzed.textproto");
    Require(parsed.ok(), parsed.status().message());
    return new PlannedConfig(*std::move(parsed));
  }();
  return *config;
}

void ReadAll(const std::string& manifest_text, const Manifest& manifest) {
  constexpr int64_t kMostBytes = 1 << 16;
  SimulatedDisk disk;
  const CheckpointFolder folder(&disk, kFolder);
  (void)disk.MakeFolder(folder.FilePath(kId, ""));
  Require(WriteWholeFile(&disk, folder.FilePath(kId, kManifestName), manifest_text).ok(), "a disk");
  for (const ShardRecord& record : manifest.records) {
    if (record.file_bytes > kMostBytes) return;
    const std::string name = ShardFileName(record.shard, record.facts.shards);
    (void)WriteWholeFile(&disk, folder.FilePath(kId, name), std::string(record.file_bytes, '\0'));
  }
  (void)folder.Verify(kId, Verification::kFull);
  const auto reader = CheckpointReader::Open(&disk, kFolder, FuzzedConfig(), kId);
  if (!reader.ok()) return;
  const std::vector<Tensor>& tensors = FuzzedConfig().model().tensors();
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    // In parts, so that chunks are read in part too.
    constexpr int64_t kPart = 4;
    for (int64_t begin = 0; begin < tensors[i].size; begin += kPart) {
      std::vector<float> values(std::min(kPart, tensors[i].size - begin));
      (void)(*reader)->ReadParameters(i, begin, absl::MakeSpan(values));
      (void)(*reader)->ReadOptimizerArray(0, i, begin, absl::MakeSpan(values));
      (void)(*reader)->ClockOf(i, begin, static_cast<int64_t>(values.size()));
    }
  }
}

void Check(absl::string_view content) {
  const std::string text =
      absl::StrCat("{\"checksum\":\"", absl::StrFormat("%016x", Checksum(content)),
                   "\",\"content\":", content, "}\n");
  if (const auto record = ParseRecord(text, "a record"); record.ok()) {
    const std::string written = FormatRecord(*record);
    const auto again = ParseRecord(written, "what was written");
    Require(again.ok() && FormatRecord(*again) == written, "a record is written and read");
  }
  if (const auto manifest = ParseManifest(text, "a manifest"); manifest.ok()) {
    const std::string written = FormatManifest(*manifest);
    const auto again = ParseManifest(written, "what was written");
    Require(again.ok() && FormatManifest(*again) == written, "a manifest is written and read");
    ReadAll(text, *manifest);
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  evenshard::Check({reinterpret_cast<const char*>(input), size});
  return 0;
}
