#ifndef PS_COMMON_CONFIG_CONFIG_OVERRIDES_H_
#define PS_COMMON_CONFIG_CONFIG_OVERRIDES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config/config_places.h"
#include "proto/config.pb.h"

namespace ps {

// Sets fields of `config` from "path=value" texts, in their order, and notes them
// in `places`. A value is written as in the file, a string with or without quotes;
// a message ("{images: 64}") or list ("[{address: "a:1"}]") replaces the old one,
// and a member of a oneof replaces the other members.
//
// Errors: INVALID_ARGUMENT, one problem a line, as "--set path=value: ...".
absl::Status ApplyOverrides(absl::Span<const std::string> overrides, ClusterConfig* config,
                            FieldPlaces* places);

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_OVERRIDES_H_
