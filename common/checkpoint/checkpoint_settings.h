#ifndef EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_SETTINGS_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_SETTINGS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// What decides how a checkpoint's arrays and iterations are to be understood, as text by the
// config's field. Where several values of a field come to the same, they have one text.
using SettingsByField = std::map<std::string, std::string>;

SettingsByField CheckpointSettings(const PlannedConfig& config);

// Errors: FAILED_PRECONDITION if the config would understand a checkpoint with the settings
// `written` otherwise than it was meant. Names the first field in which they differ.
absl::Status CheckSettings(const SettingsByField& written, const PlannedConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_SETTINGS_H_
