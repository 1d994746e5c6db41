#include "tools/psctl/verbs/psctl_flags.h"

#include "absl/strings/str_cat.h"

namespace evenshard {

absl::Status CheckFormat(const std::string& format) {
  if (format == "table" || format == "json") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--format: is \"", format, "\", allowed: table, json"));
}

absl::Status CheckAboveZero(absl::string_view flag, double value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": is ", value, ", allowed: a number above 0"));
}

}  // namespace evenshard
