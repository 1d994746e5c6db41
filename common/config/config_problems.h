#ifndef PS_COMMON_CONFIG_CONFIG_PROBLEMS_H_
#define PS_COMMON_CONFIG_CONFIG_PROBLEMS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/config/config_places.h"

namespace ps {

// Gathers what is wrong with the fields of a config, each with its place.
class FieldProblems {
 public:
  using Fields = std::initializer_list<absl::string_view>;

  // `places` must outlive this.
  explicit FieldProblems(const FieldPlaces& places) : places_(places) {}

  // Where one of `causes`, the other fields that matter, was overridden and the
  // field was not, the override is the place.
  void Add(absl::string_view field, absl::string_view problem, Fields causes = {});

  // Adds "is `value`, allowed: `allowed`" unless `ok`. Write `ok` so that a NaN makes
  // it false.
  void Require(bool ok, absl::string_view field, const absl::AlphaNum& value,
               absl::string_view allowed, Fields causes = {});

  template <typename T>
  void RequireRange(absl::string_view field, T value, T min, T max) {
    Require(min <= value && value <= max, field, value, absl::StrCat(min, " to ", max));
  }

  bool empty() const { return lines_.empty(); }
  // OK, or INVALID_ARGUMENT with one problem a line.
  absl::Status status() const;

 private:
  const FieldPlaces& places_;
  std::vector<std::string> lines_;
};

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_PROBLEMS_H_
