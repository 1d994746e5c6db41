#ifndef EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_PLACES_H_
#define EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_PLACES_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace evenshard {

// Records where each field of a config was set, in a line of the file or by an override. A field is
// given as a path such as "shard[1].address". Not thread-safe until it is complete.
class FieldPlaces {
 public:
  explicit FieldPlaces(std::string source) : source_(std::move(source)) {}

  void SetLine(const std::string& field, int line);
  // Records that "--set `override`" has set `field` and everything within it.
  void SetOverride(const std::string& field, absl::string_view override);

  // Returns "file:line" or "--set ..." for the field, or for the innermost message around it that
  // was set. Returns line 1 if none was.
  std::string Of(absl::string_view field) const;

  // Returns whether Of() returns an override.
  bool IsOverridden(absl::string_view field) const;

  // Returns the "--set ..." that set the field, a message around it or a field within it, or null
  // if there is none.
  const std::string* OverrideOf(absl::string_view field) const;

 private:
  std::string source_;
  std::map<std::string, int> lines_;
  std::map<std::string, std::string> overrides_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_PLACES_H_
