#include "server/join_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/model/declaration.h"
#include "common/wire/chunk_codec.h"
#include "google/protobuf/util/message_differencer.h"

namespace ps {
namespace {

// Returns, for example, "optimizer.learning_rate: 0.1 -> 0.2; ..." with each field that differs.
std::string Differences(const ClusterConfig& own, const ClusterConfig& theirs) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(own, theirs);
  return Printable(absl::StrReplaceAll(absl::StripSuffix(report, "\n"), {{"\n", "; "}}));
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

absl::Status CheckSameConfig(const Config& config, const JoinRequest& request, int shard) {
  const bool same_plan = request.plan_fingerprint() == config.plan().fingerprint();
  if (same_plan && request.config_fingerprint() == config.fingerprint()) return absl::OkStatus();
  const FromWorkers& model = config.proto().model().from_workers();
  const std::string other_model =
      request.has_config()
          ? Printable(DeclaredDifference(model, request.config().model().from_workers()))
          : "";
  if (!other_model.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", request.worker(), " has another model than the worker that came first: ",
        "on shard ", shard, " ", other_model, "; give all workers the same model"));
  }
  const std::string differences =
      request.has_config() ? Differences(config.Contract(), request.config()) : "";
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", request.worker(), " has another ", same_plan ? "config" : "plan", " than shard ",
      shard, "; give both the same config file",
      differences.empty() ? "" : absl::StrCat(" (shard -> worker: ", differences, ")")));
}

}  // namespace ps
