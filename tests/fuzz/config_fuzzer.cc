// libFuzzer target: config files and overrides. They are taken or refused with an error that names
// the file or the override, and what was taken is written and read again as the same config.
//
// The input is the text of the file; a byte 0 ends it, and each override after it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "google/protobuf/text_format.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

void Check(absl::string_view input) {
  constexpr size_t kMostOverrides = 4;
  std::vector<std::string> overrides = absl::StrSplit(input, absl::MaxSplits('\0', kMostOverrides));
  const std::string text = overrides.front();
  overrides.erase(overrides.begin());
  const absl::StatusOr<Config> config = Config::Parse(text, "/folder/fuzzed.textproto", overrides);
  if (!config.ok()) {
    Require(absl::IsInvalidArgument(config.status()) && !config.status().message().empty(),
            "a refusal says why");
    return;
  }
  std::string written;
  Require(google::protobuf::TextFormat::PrintToString(config->proto(), &written), "it is printed");
  const absl::StatusOr<Config> again = Config::Parse(written, "/folder/written.textproto");
  Require(again.ok(), again.status().message());
  Require(again->proto().SerializeAsString() == config->proto().SerializeAsString(),
          "what is written is read as the same");
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  evenshard::Check({reinterpret_cast<const char*>(input), size});
  return 0;
}
