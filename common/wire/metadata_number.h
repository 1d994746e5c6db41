#ifndef EVENSHARD_COMMON_WIRE_METADATA_NUMBER_H_
#define EVENSHARD_COMMON_WIRE_METADATA_NUMBER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_context.h"

namespace evenshard {

// Returns a number of type T from a call's metadata, or `absent` if there is none. Errors:
// INVALID_ARGUMENT if it is none of T's numbers, or if there is none and no `absent`.
template <typename T>
absl::StatusOr<T> MetadataNumber(const grpc::CallbackServerContext& context, const char* key,
                                 std::optional<T> absent = std::nullopt) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) {
    if (absent.has_value()) return *absent;
    return absl::InvalidArgumentError(
        absl::StrCat("the call's metadata lack ", key, ", allowed: a decimal number"));
  }
  const absl::string_view text(found->second.data(), found->second.size());
  T number;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat("the call's metadata ", key, " is \"", text,
                                                 "\", allowed: a decimal number of ", 8 * sizeof(T),
                                                 " bits"));
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_METADATA_NUMBER_H_
