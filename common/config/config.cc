#include "common/config/config.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/config/config_contract.h"
#include "common/config/config_overrides.h"
#include "common/config/config_problems.h"
#include "common/config/config_text.h"
#include "common/config/config_validation.h"
#include "common/placement/chunk_size.h"
#include "common/placement/declaration.h"

namespace evenshard {
namespace {

// Far larger than any config. It bounds what is read of a file like /dev/zero.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  const auto error = [&path] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the config file \"", path, "\""));
  };
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return error();
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get())) return error();
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the config file \"", path, "\" is too large, allowed: at most ", kMaxFileBytes, " bytes"));
  }
  return text;
}

void ResolvePaths(absl::string_view config_file, ClusterConfig* config) {
  const size_t slash = config_file.rfind('/');
  if (slash == absl::string_view::npos) return;
  const absl::string_view folder = config_file.substr(0, slash + 1);
  VisitPaths(config, [folder](std::string* path) {
    if (!path->empty() && !absl::StartsWith(*path, "/")) path->insert(0, std::string(folder));
  });
}

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

absl::StatusOr<Config> Config::Load(const std::string& path,
                                    absl::Span<const std::string> overrides) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return Parse(text, path, overrides);
}

absl::StatusOr<Config> Config::Parse(absl::string_view text, const std::string& name,
                                     absl::Span<const std::string> overrides) {
  return Make(std::make_shared<const Source>(
                  Source{std::string(text), name, std::vector(overrides.begin(), overrides.end())}),
              Declaration());
}

absl::Status Config::CheckOwnModel() const {
  if (!is_from_workers()) return absl::OkStatus();
  return FieldError("model.from_workers",
                    "is for programs that bring a model and train it, allowed here: builtin, or "
                    "input and layer");
}

absl::StatusOr<Config> Config::Declared(const Declaration& declaration) const {
  if (!is_from_workers()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model of this run is ", model_.name(),
                     ", and a worker brings one, allowed with model.from_workers"));
  }
  const std::string difference =
      has_model() ? DeclaredDifference(proto_.model().from_workers(), declaration.model()) : "";
  if (!difference.empty()) {
    return FieldError("model.from_workers",
                      absl::StrCat("is another model than the worker's: ", difference,
                                   ", allowed: the same model in all workers"));
  }
  return Make(source_, declaration);
}

absl::StatusOr<Config> Config::Make(std::shared_ptr<const Source> source,
                                    const Declaration& declaration) {
  const std::string& name = source->name;
  if (absl::StripAsciiWhitespace(source->text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ":1: is empty, allowed: a ClusterConfig as docs/configuration.md describes it"));
  }
  ClusterConfig proto;
  FieldPlaces places(name);
  const std::vector<TextProblem> text_problems = ParseText(source->text, &proto, &places);
  if (!text_problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrJoin(text_problems, "\n", [&name](std::string* out, const TextProblem& problem) {
          absl::StrAppend(out, name, ":", problem.line, ": ", problem.ToString());
        }));
  }
  RETURN_IF_ERROR(ApplyOverrides(source->overrides, &proto, &places));

  Config config(std::move(source), std::move(proto), std::move(places));
  const bool brings_optimizer = declaration.has_optimizer();
  if (brings_optimizer && config.proto_.has_optimizer()) {
    return config.FieldError("optimizer", "is given, and the worker brings one too, allowed: one");
  }
  if (config.is_from_workers()) {
    ClusterConfig undeclared = config.proto_;
    undeclared.mutable_model()->mutable_from_workers()->clear_tensor();
    SetDependentDefaults(Model(), &undeclared);
    config.run_fingerprint_ = Fingerprint(undeclared);
    if (declaration.has_model()) {
      *config.proto_.mutable_model()->mutable_from_workers() = declaration.model();
    }
    if (brings_optimizer) *config.proto_.mutable_optimizer() = declaration.optimizer();
    config.declaration_ = DeclarationOf(config.proto_, brings_optimizer);
  }
  RETURN_IF_ERROR(config.Complete());
  config.fingerprint_ = Fingerprint(config.proto_);
  if (!config.is_from_workers()) config.run_fingerprint_ = config.fingerprint_;
  return config;
}

absl::Status Config::Complete() {
  FieldProblems problems(places_);
  ValidateFields(proto_, &problems);
  if (proto_.model().ByteSizeLong() == 0) {
    problems.Add("model", "is missing, allowed: builtin, input and layer, or from_workers");
    return problems.status();
  }
  if (is_from_workers() && proto_.model().from_workers().tensor().empty()) {
    SetDependentDefaults(model_, &proto_);
    ResolvePaths(source_->name, &proto_);
    return problems.status();
  }
  absl::StatusOr<Model> model = Model::Create(proto_.model());
  if (!model.ok()) {
    AddModelProblem(model.status().message(), &problems);
    return problems.status();
  }
  if (is_from_workers()) {
    ValidateModelBytes(proto_.limits(), *model, &problems);
  } else {
    ValidateComputeAgainstModel(proto_, *model, &problems);
    ValidateDataAgainstModel(proto_, *model, &problems);
  }
  ValidateOptimizerAgainstModel(proto_, *model, &problems);
  SetDependentDefaults(*model, &proto_);
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
      ValidateCheckpointBuffer(proto_, &problems);
    } else {
      AddPlanProblem(choice.status().message(), &problems);
    }
  }
  if (!problems.empty()) return problems.status();

  ResolvePaths(source_->name, &proto_);
  model_ = *std::move(model);
  choice_ = *std::move(choice);
  return absl::OkStatus();
}

const std::string& Config::process_address(int process) const {
  return process < shards() ? address(process)
                            : proto_.recovery().spare(process - shards()).address();
}

ClusterConfig Config::Contract() const { return ContractOf(proto_); }

absl::Status Config::FieldError(absl::string_view field, absl::string_view problem) const {
  FieldProblems problems(places_);
  problems.Add(field, problem);
  return problems.status();
}

}  // namespace evenshard
