#include "common/checkpoint/checkpoint_id.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace evenshard {

std::string CheckpointId::ToString() const {
  return absl::StrCat(absl::StrFormat("generation-%04u-iteration-%010u", generation, iteration),
                      assignments > 0 ? absl::StrCat("+", assignments) : "");
}

std::optional<CheckpointId> ParseCheckpointId(absl::string_view name) {
  absl::string_view rest = name;
  CheckpointId id;
  if (!absl::ConsumePrefix(&rest, "generation-")) return std::nullopt;
  const size_t dash = rest.find('-');
  if (dash == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, dash), &id.generation)) {
    return std::nullopt;
  }
  rest.remove_prefix(dash);
  if (!absl::ConsumePrefix(&rest, "-iteration-")) return std::nullopt;
  const size_t plus = rest.find('+');
  if (plus != absl::string_view::npos) {
    if (!absl::SimpleAtoi(rest.substr(plus + 1), &id.assignments)) return std::nullopt;
    rest.remove_suffix(rest.size() - plus);
  }
  if (!absl::SimpleAtoi(rest, &id.iteration)) return std::nullopt;
  // Other spellings of the same numbers are not names.
  if (id.ToString() != name) return std::nullopt;
  return id;
}

std::string ShardFileName(int shard, int shards) {
  return absl::StrCat("shard-", shard, "-of-", shards, ".safetensors");
}

std::string ShardRecordName(int shard, int shards) {
  return absl::StrCat("shard-", shard, "-of-", shards, ".json");
}

}  // namespace evenshard
