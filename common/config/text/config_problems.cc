#include "common/config/text/config_problems.h"

#include "absl/strings/str_join.h"

namespace evenshard {

void FieldProblems::Add(absl::string_view field, absl::string_view problem, Fields causes) {
  std::string place = places_.Of(field);
  for (const absl::string_view cause : causes) {
    if (places_.IsOverridden(field)) break;
    if (const std::string* override = places_.OverrideOf(cause)) {
      place = *override;
      break;
    }
  }
  lines_.push_back(absl::StrCat(place, ": ", field, ": ", problem));
}

void FieldProblems::Require(bool ok, absl::string_view field, const absl::AlphaNum& value,
                            absl::string_view allowed, Fields causes) {
  if (!ok) Add(field, absl::StrCat("is ", value, ", allowed: ", allowed), causes);
}

absl::Status FieldProblems::status() const {
  if (empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
}

}  // namespace evenshard
