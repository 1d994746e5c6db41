#ifndef EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_PROBLEMS_H_
#define EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_PROBLEMS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/config/text/config_places.h"

namespace evenshard {

// Collects the problems of a config's fields, with the place where each field was set.
class FieldProblems {
 public:
  using Fields = std::initializer_list<absl::string_view>;

  // `places` must outlive this.
  explicit FieldProblems(const FieldPlaces& places) : places_(places) {}

  // Adds a problem of `field`. `causes` are the other fields that it depends on. If one of them was
  // overridden and `field` was not, the place of the problem is that override.
  void Add(absl::string_view field, absl::string_view problem, Fields causes = {});

  // Adds the problem "is `value`, allowed: `allowed`" unless `ok`. The condition must be false for
  // a NaN.
  void Require(bool ok, absl::string_view field, const absl::AlphaNum& value,
               absl::string_view allowed, Fields causes = {});

  template <typename T>
  void RequireRange(absl::string_view field, T value, T min, T max) {
    Require(min <= value && value <= max, field, value, absl::StrCat(min, " to ", max));
  }

  bool empty() const { return lines_.empty(); }
  // Returns OK, or INVALID_ARGUMENT with one line for each problem.
  absl::Status status() const;

 private:
  const FieldPlaces& places_;
  std::vector<std::string> lines_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_PROBLEMS_H_
