#include "common/config/text/config_places.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

constexpr char kPrefix[] = "--set ";
// A longer override is cut where an error names it.
constexpr size_t kLongestOverride = 200;

// Returns whether `field` is `outer` or lies within it.
bool IsWithin(absl::string_view field, absl::string_view outer) {
  if (!absl::StartsWith(field, outer)) return false;
  return field.size() == outer.size() || field[outer.size()] == '.' || field[outer.size()] == '[';
}

// "shard[1].address" -> "shard[1]" -> "shard" -> "".
absl::string_view Parent(absl::string_view field) {
  const size_t end = field.find_last_of(".[");
  return end == absl::string_view::npos ? absl::string_view() : field.substr(0, end);
}

template <typename Map>
void EraseWithin(absl::string_view outer, Map* map) {
  for (auto it = map->begin(); it != map->end();) {
    it = IsWithin(it->first, outer) ? map->erase(it) : std::next(it);
  }
}

}  // namespace

void FieldPlaces::SetLine(const std::string& field, int line) { lines_[field] = line; }

void FieldPlaces::SetOverride(const std::string& field, absl::string_view override) {
  EraseWithin(field, &lines_);
  EraseWithin(field, &overrides_);
  overrides_[field] = absl::StrCat(kPrefix, override.substr(0, kLongestOverride),
                                   override.size() > kLongestOverride ? "..." : "");
}

std::string FieldPlaces::Of(absl::string_view field) const {
  for (; !field.empty(); field = Parent(field)) {
    const std::string key(field);
    if (const auto it = overrides_.find(key); it != overrides_.end()) return it->second;
    if (const auto it = lines_.find(key); it != lines_.end()) {
      return absl::StrCat(source_, ":", it->second);
    }
  }
  return absl::StrCat(source_, ":1");
}

bool FieldPlaces::IsOverridden(absl::string_view field) const {
  return Of(field).starts_with(kPrefix);
}

const std::string* FieldPlaces::OverrideOf(absl::string_view field) const {
  for (const auto& [overridden, text] : overrides_) {
    if (IsWithin(field, overridden) || IsWithin(overridden, field)) return &text;
  }
  return nullptr;
}

}  // namespace evenshard
