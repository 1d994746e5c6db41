#include "tools/psctl/report/plan/prediction_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/placement/plan/device_profile.h"

namespace evenshard {

std::string PredictionText(const PlannedConfig& config, const PredictedTime& predicted) {
  const ClusterConfig& proto = config.proto();
  return absl::StrCat(
      "predicted      ", FormatSeconds(predicted.seconds), " per iteration, bound ",
      FormatSeconds(predicted.bound_seconds), "\n", kFindingIndent, "(",
      absl::AsciiStrToLower(ExchangeConfig::Schedule_Name(proto.exchange().schedule())), ", ",
      absl::AsciiStrToLower(Update::Policy_Name(proto.update().policy())),
      config.clips_mean() ? ", clipped by norm, " : ", ",
      predicted.computes
          ? absl::StrCat(predicted.device, ", batch ", proto.training().batch_size(), ", ")
          : "",
      predicted.links, ")\n",
      predicted.computes
          ? ""
          : absl::StrCat(kFindingIndent, "(the exchange alone: ", NoComputeReason(proto), ")\n"));
}

}  // namespace evenshard
