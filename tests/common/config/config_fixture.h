#ifndef EVENSHARD_TESTS_COMMON_CONFIG_CONFIG_FIXTURE_H_
#define EVENSHARD_TESTS_COMMON_CONFIG_CONFIG_FIXTURE_H_

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// A valid config. The errors that tests expect contain its line numbers.
inline constexpr char kConfig[] = R"(model {
  input { channels: 1 height: 8 width: 8 }
  layer { name: "fc1" linear { out_features: 32 } }
  layer { relu {} }
  layer { name: "fc2" linear { out_features: 10 } }
}
partition { scheme: MEMORY_BASED }
shard { address: "localhost:50051" }
shard { address: "localhost:50052" }
workers: 2
update { policy: SYNC }
training { batch_size: 4 epochs: 3 }
data {
  idx { images: "digits/images" labels: "/abs/labels" }
  holdout: 0.2
}
)";

using Overrides = std::vector<std::string>;

inline PlannedConfig Valid(absl::string_view text = kConfig, const Overrides& overrides = {}) {
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(text, "f", overrides);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

// Returns the message of the error for a text.
inline std::string ErrorOf(absl::string_view text, const Overrides& overrides = {}) {
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(text, "f", overrides);
  if (config.ok()) return "no error";
  CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

// Returns the error of kConfig with one part replaced.
inline std::string ErrorWith(const std::string& part, const std::string& replacement) {
  const std::string text = absl::StrReplaceAll(kConfig, {{part, replacement}});
  REQUIRE(text != kConfig);
  return ErrorOf(text);
}

// Returns the error of kConfig with an override, without the prefix "--set override: ".
inline std::string ErrorOfOverride(const std::string& override) {
  std::string error = ErrorOf(kConfig, {override});
  const std::string prefix = absl::StrCat("--set ", override, ": ");
  if (!absl::StartsWith(error, prefix)) return error;
  return error.substr(prefix.size());
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONFIG_CONFIG_FIXTURE_H_
