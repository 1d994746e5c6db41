#ifndef EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_OVERRIDES_H_
#define EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_OVERRIDES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config/text/config_places.h"
#include "proto/config.pb.h"

namespace evenshard {

// Applies overrides of the form "path=value" to `config`, in their order, and records them in
// `places`. A value is written as in the config file; the quotes of a string may be left out. A
// message such as "{images: 64}" or a list such as "[{address: "a:1"}]" replaces the old one, and a
// member of a oneof replaces any other member.
//
// Errors: INVALID_ARGUMENT with one line for each problem, "--set path=value: ...".
absl::Status ApplyOverrides(absl::Span<const std::string> overrides, ClusterConfig* config,
                            FieldPlaces* places);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_OVERRIDES_H_
