#ifndef EVENSHARD_COMMON_WIRE_METADATA_NUMBER_H_
#define EVENSHARD_COMMON_WIRE_METADATA_NUMBER_H_

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_context.h"

namespace evenshard {

// Returns a number from a call's metadata, or 0 if there is none.
inline uint64_t MetadataNumber(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  uint64_t number = 0;
  if (found == context.client_metadata().end()) return number;
  const absl::string_view text(found->second.data(), found->second.size());
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_METADATA_NUMBER_H_
