#include "server/session/join_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/placement/declaration.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "google/protobuf/util/message_differencer.h"

namespace evenshard {
namespace {

// Returns, for example, "optimizer.learning_rate: 0.1 -> 0.2; ..." with each field that differs.
std::string Differences(const ClusterConfig& own, const ClusterConfig& theirs) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(own, theirs);
  return Printable(absl::StrReplaceAll(absl::StripSuffix(report, "\n"), {{"\n", "; "}}));
}

// Errors name what differs if the request has the worker's config.
absl::Status CheckSameConfig(const PlannedConfig& config, const JoinRequest& request, int shard) {
  const bool same_plan = request.plan_fingerprint() == config.plan().fingerprint();
  if (same_plan && request.config_fingerprint() == config.fingerprint()) return absl::OkStatus();
  const FromWorkers& model = config.proto().model().from_workers();
  const std::string other_model =
      request.has_config()
          ? Printable(DeclaredDifference(model, request.config().model().from_workers()))
          : "";
  if (!other_model.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " has another model than worker 0: ", "on shard ",
                     shard, " ", other_model, "; give all workers the same model"));
  }
  const std::string differences =
      request.has_config() ? Differences(config.Contract(), request.config()) : "";
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", request.worker(), " has another ", same_plan ? "config" : "plan", " than shard ",
      shard, "; give both the same config file",
      differences.empty() ? "" : absl::StrCat(" (shard -> worker: ", differences, ")")));
}

// Returns OK if the worker speaks the encodings of the exchange.
absl::Status CheckEncodings(const PlannedConfig& config, const JoinRequest& request) {
  const ExchangeConfig& exchange = config.proto().exchange();
  const auto speaks = [&](int encoding) {
    const auto& listed = request.encodings();
    return encoding == FLOAT32 || std::find(listed.begin(), listed.end(), encoding) != listed.end();
  };
  for (const auto& [field, encoding] :
       {std::pair("gradient_encoding", exchange.gradient_encoding()),
        std::pair("parameter_encoding", exchange.parameter_encoding())}) {
    if (speaks(encoding)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " does not speak ", EncodingName(encoding),
                     ", which is the run's exchange.", field, ", but ", EncodingNames(speaks)));
  }
  for (const Tensor& tensor : config.model().tensors()) {
    if (speaks(tensor.type)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " does not speak ", EncodingName(tensor.type),
                     ", the type of ", tensor.name, ", but ", EncodingNames(speaks)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckVersions(const JoinRequest& request, int shard) {
  const auto check = [&](absl::string_view what, uint32_t theirs, uint32_t ours) -> absl::Status {
    theirs = std::max(theirs, 1u);  // clients of version 1 do not say it
    if (theirs == ours) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " ", what, " of version ", theirs, ", shard ",
                     shard, " those of version ", ours, "; run the same build everywhere"));
  };
  RETURN_IF_ERROR(check("sends messages", request.protocol_version(), kProtocolVersion));
  return check("makes plans", request.plan_version(), kPlanVersion);
}

absl::Status CheckJoin(const PlannedConfig& config, const JoinRequest& request, int shard) {
  RETURN_IF_ERROR(CheckVersions(request, shard));
  RETURN_IF_ERROR(CheckSameConfig(config, request, shard));
  return CheckEncodings(config, request);
}

}  // namespace evenshard
