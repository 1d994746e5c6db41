#include "common/checkpoint/untrusted_json.h"

#include <algorithm>

namespace evenshard {
namespace {

// How deeply lists and objects are nested, if the text is JSON.
int DepthOf(absl::string_view text) {
  int depth = 0;
  int most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return most;
}

}  // namespace

nlohmann::json ParseUntrustedJson(absl::string_view text, int deepest) {
  using Json = nlohmann::json;
  if (DepthOf(text) > deepest) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace evenshard
