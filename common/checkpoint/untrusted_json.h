#ifndef EVENSHARD_COMMON_CHECKPOINT_UNTRUSTED_JSON_H_
#define EVENSHARD_COMMON_CHECKPOINT_UNTRUSTED_JSON_H_

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace evenshard {

// Parses JSON that anybody may have written. Returns a discarded value if the text is no JSON or is
// nested more deeply than `deepest`, which could take a hundred times the memory of the text. The
// objects are sorted by name: with nlohmann::ordered_json, the time would grow with the square of
// the number of names.
nlohmann::json ParseUntrustedJson(absl::string_view text, int deepest);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_UNTRUSTED_JSON_H_
