#ifndef PS_COMMON_CONFIG_CONFIG_PLACES_H_
#define PS_COMMON_CONFIG_CONFIG_PLACES_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace ps {

// Where each field of a config was set: a line of the file or an override. Fields
// are paths such as "shard[1].address". Not thread-safe while it is being filled.
class FieldPlaces {
 public:
  explicit FieldPlaces(std::string source) : source_(std::move(source)) {}

  const std::string& source() const { return source_; }

  void SetLine(const std::string& field, int line);
  // `field`, with all beneath it, was given by "--set `override`".
  void SetOverride(const std::string& field, absl::string_view override);

  // "file:line" or "--set ..." of the field, or of the nearest message around it
  // that was set; line 1 where there is none.
  std::string Of(absl::string_view field) const;

  // Whether Of() is an override.
  bool IsOverridden(absl::string_view field) const;

  // The "--set ..." of the field, of a message around it or of a field beneath it;
  // null where it was not overridden.
  const std::string* OverrideOf(absl::string_view field) const;

 private:
  std::string source_;
  std::map<std::string, int> lines_;
  std::map<std::string, std::string> overrides_;
};

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_PLACES_H_
