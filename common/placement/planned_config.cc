#include "common/placement/planned_config.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/config/config_contract.h"
#include "common/config/config_validation.h"
#include "common/config/optimizer_rules.h"
#include "common/config/text/config_problems.h"
#include "common/placement/declaration.h"
#include "common/placement/model_checks.h"
#include "common/placement/plan/chunk_size.h"

namespace evenshard {
namespace {

// `message` is an error of Model::Create. It begins with the field, "layer[2] ..." or "input.height
// must ...".
void AddModelProblem(absl::string_view message, FieldProblems* problems) {
  const size_t end = message.find_first_of(": ");
  const absl::string_view path = message.substr(0, end);
  const std::string top(path.substr(0, path.find_first_of(".[")));
  std::string field = "model";
  if (ModelSpec::descriptor()->FindFieldByName(top) != nullptr) {
    absl::StrAppend(&field, ".", path);
    message.remove_prefix(path.size());
    absl::ConsumePrefix(&message, ":");
    message = absl::StripLeadingAsciiWhitespace(message);
  }
  problems->Add(field, message, {"model"});
}

void AddPlanProblem(absl::string_view message, FieldProblems* problems) {
  problems->Add(absl::StartsWith(message, "chunk_bytes") ? "limits.chunk_bytes" : "shard", message,
                {"partition", "model", "limits.chunk_bytes"});
}

// The message has no map fields, so its serialization is the same in every process.
uint64_t Fingerprint(const ClusterConfig& config) {
  return Fnv1a64(ContractOf(config).SerializeAsString());
}

}  // namespace

absl::StatusOr<PlannedConfig> PlannedConfig::Load(const std::string& path,
                                                  absl::Span<const std::string> overrides) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Source> source, Read(path, overrides));
  return Make(std::move(source), Declaration());
}

absl::StatusOr<PlannedConfig> PlannedConfig::Parse(absl::string_view text, const std::string& name,
                                                   absl::Span<const std::string> overrides) {
  return Make(std::make_shared<const Source>(
                  Source{std::string(text), name, std::vector(overrides.begin(), overrides.end())}),
              Declaration());
}

absl::StatusOr<PlannedConfig> PlannedConfig::Declared(const Declaration& declaration) const {
  if (!is_from_workers()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model of this run is ", model_.name(),
                     ", and a worker brings one, allowed with model.from_workers"));
  }
  const std::string difference =
      has_model() ? DeclaredDifference(proto_.model().from_workers(), declaration.model()) : "";
  if (!difference.empty()) {
    return FieldError("model.from_workers",
                      absl::StrCat("is another model than the worker's: ", Printable(difference),
                                   ", allowed: the same model in all workers"));
  }
  return Make(source_, declaration);
}

absl::StatusOr<PlannedConfig> PlannedConfig::Make(std::shared_ptr<const Source> source,
                                                  const Declaration& declaration) {
  ASSIGN_OR_RETURN(Config unchecked, Unchecked(std::move(source)));
  PlannedConfig config(std::move(unchecked));
  const ClusterConfig file = config.proto_;
  const auto refuse_second = [&](bool given, bool brought, absl::string_view field) {
    if (!given || !brought) return absl::OkStatus();
    return config.FieldError(field, "is given, and the worker brings one too, allowed: one");
  };
  const Update& update = file.update();
  RETURN_IF_ERROR(refuse_second(file.has_optimizer(), declaration.has_optimizer(), "optimizer"));
  RETURN_IF_ERROR(refuse_second(file.has_local(), declaration.has_local(), "local"));
  RETURN_IF_ERROR(
      refuse_second(update.clip_value() != 0, declaration.has_clip_value(), "update.clip_value"));
  RETURN_IF_ERROR(refuse_second(update.clip_global_norm() != 0, declaration.has_clip_global_norm(),
                                "update.clip_global_norm"));
  if (config.is_from_workers()) {
    ClusterConfig undeclared = config.proto_;
    undeclared.mutable_model()->mutable_from_workers()->clear_tensor();
    SetDefaults(&undeclared);
    config.run_fingerprint_ = Fingerprint(undeclared);
    if (declaration.has_model()) {
      *config.proto_.mutable_model()->mutable_from_workers() = declaration.model();
    }
    if (declaration.has_optimizer()) *config.proto_.mutable_optimizer() = declaration.optimizer();
    if (declaration.has_local()) *config.proto_.mutable_local() = declaration.local();
    Update* const declared = config.proto_.mutable_update();
    if (declaration.has_clip_value()) declared->set_clip_value(declaration.clip_value());
    if (declaration.has_clip_global_norm()) {
      declared->set_clip_global_norm(declaration.clip_global_norm());
    }
    config.declaration_ = DeclarationOf(config.proto_, file);
  }
  RETURN_IF_ERROR(config.Complete());
  config.fingerprint_ = Fingerprint(config.proto_);
  if (!config.is_from_workers()) config.run_fingerprint_ = config.fingerprint_;
  return config;
}

absl::Status PlannedConfig::Complete() {
  FieldProblems problems(*places_);
  Check(&problems);
  if (proto_.model().ByteSizeLong() == 0) return problems.status();
  if (is_from_workers() && proto_.model().from_workers().tensor().empty()) {
    ResolvePaths();
    return problems.status();
  }
  absl::StatusOr<Model> model = Model::Create(proto_.model());
  if (!model.ok()) {
    AddModelProblem(model.status().message(), &problems);
    return problems.status();
  }
  if (is_from_workers()) {
    CheckModelBytes(proto_.limits(), *model, &problems);
  } else {
    CheckProfile(proto_, &problems);
    CheckCompute(proto_, *model, &problems);
    CheckData(proto_, *model, &problems);
  }
  CheckOptimizer(proto_.optimizer(), kOptimizerPath, *model, &problems);
  if (proto_.has_local()) {
    CheckOptimizer(proto_.local().optimizer(), kLocalOptimizerPath, *model, &problems);
    CheckFragments(proto_.local(), *model, &problems);
  }
  CheckUpdateEncoding(proto_.exchange(), *model, &problems);
  SetModelDefaults(*model, &proto_);
  if (is_ring()) {
    if (problems.empty()) CompleteRing(*model, &problems);
    if (!problems.empty()) return problems.status();
    ResolvePaths();
    model_ = *std::move(model);
    return absl::OkStatus();
  }
  // A plan with arguments that were refused above would only report them once more, and AUTO goes
  // by nearly all of them.
  const bool can_plan = proto_.partition().scheme() == Partition::AUTO
                            ? problems.empty()
                            : !proto_.shard().empty() && AreShardRates(proto_) &&
                                  proto_.partition().scheme() != Partition::SCHEME_UNSPECIFIED &&
                                  IsChunkBytesOrAbsent(proto_.limits());
  absl::StatusOr<PlanChoice> choice = absl::UnknownError("not made");
  if (can_plan) {
    choice = ChoosePlan(proto_, *model);
    if (choice.ok()) {
      SetChunkLimits(choice->chunk_bytes, proto_.mutable_limits());
      ValidateHeldBytes(proto_.limits(), &problems);
      ValidateChunkState(proto_, &problems);
    } else {
      AddPlanProblem(choice.status().message(), &problems);
    }
  }
  if (!problems.empty()) return problems.status();

  ResolvePaths();
  model_ = *std::move(model);
  choice_ = *std::move(choice);
  return absl::OkStatus();
}

void PlannedConfig::CompleteRing(const Model& model, FieldProblems* problems) {
  ChunkSize chunk = {.bytes = proto_.limits().chunk_bytes(), .reason = "as the config says"};
  if (!proto_.limits().has_chunk_bytes()) chunk = ChooseRingChunkSize(model, workers());
  choice_.chunk_bytes = chunk.bytes;
  choice_.chunk_bytes_reason = std::move(chunk.reason);
  SetChunkLimits(chunk.bytes, proto_.mutable_limits());
  proto_.mutable_limits()->clear_lead_bytes();  // which is about shards
  ValidateHeldBytes(proto_.limits(), problems);
  ValidateBuckets(proto_, problems);
  if (!problems->empty()) return;
  absl::StatusOr<RingPlan> plan = RingPlan::Create(model, RingPlan::OptionsOf(proto_));
  if (plan.ok()) {
    ring_plan_ = *std::move(plan);
  } else {
    AddPlanProblem(plan.status().message(), problems);
  }
}

ClusterConfig PlannedConfig::Contract() const { return ContractOf(proto_); }

}  // namespace evenshard
