#include "common/checkpoint/checkpoint_settings.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/config/asynchrony.h"

namespace evenshard {
namespace {

// The settings in the order in which they are compared: what others depend on comes first.
std::vector<std::pair<std::string, std::string>> Settings(const PlannedConfig& config) {
  const ClusterConfig& proto = config.proto();
  const Asynchrony::Correction correction = CorrectionOf(proto);
  return {
      {"optimizer.kind", OptimizerConfig::Kind_Name(proto.optimizer().kind())},
      {"update.policy", Update::Policy_Name(proto.update().policy())},
      // Iterations are counted by rounds.
      {"local.steps", absl::StrCat(proto.local().steps())},
      // These have arrays of their own, or one that has its own meaning.
      {"update.asynchrony.velocity", HasVelocityPerWorker(proto) ? "PER_WORKER" : "SHARED"},
      {"update.asynchrony.correction", HasMeanSquare(correction)
                                           ? Asynchrony::Correction_Name(correction)
                                           : "NONE or DELAY_COMPENSATION"},
      {"exchange.update_encoding", proto.exchange().has_update_encoding() ? "some" : "none"},
      // An iteration's place in the data follows from it.
      {"training.batch_size",
       config.is_from_workers() ? "the script's" : absl::StrCat(proto.training().batch_size())},
  };
}

}  // namespace

SettingsByField CheckpointSettings(const PlannedConfig& config) {
  const auto settings = Settings(config);
  return {settings.begin(), settings.end()};
}

absl::Status CheckSettings(const SettingsByField& written, const PlannedConfig& config) {
  for (const auto& [field, here] : Settings(config)) {
    const auto found = written.find(field);
    const std::string there = found == written.end() ? "no value" : Printable(found->second);
    if (there == here) continue;
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint was written with ", field,
                                                      " ", there, ", but this config has ", here));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
