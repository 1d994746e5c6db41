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

namespace ps {
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

}  // namespace

Config::Config(ClusterConfig proto, Model model, PlanChoice choice, FieldPlaces places)
    : proto_(std::move(proto)),
      model_(std::move(model)),
      choice_(std::move(choice)),
      places_(std::move(places)),
      // The message has no map fields, so its serialization is the same in every process.
      fingerprint_(Fnv1a64(Contract().SerializeAsString())) {}

absl::StatusOr<Config> Config::Load(const std::string& path,
                                    absl::Span<const std::string> overrides) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return Parse(text, path, overrides);
}

absl::StatusOr<Config> Config::Parse(absl::string_view text, const std::string& name,
                                     absl::Span<const std::string> overrides) {
  if (absl::StripAsciiWhitespace(text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ":1: is empty, allowed: a ClusterConfig as docs/configuration.md describes it"));
  }
  ClusterConfig proto;
  FieldPlaces places(name);
  const std::vector<TextProblem> text_problems = ParseText(text, &proto, &places);
  if (!text_problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrJoin(text_problems, "\n", [&name](std::string* out, const TextProblem& problem) {
          absl::StrAppend(out, name, ":", problem.line, ": ", problem.ToString());
        }));
  }
  RETURN_IF_ERROR(ApplyOverrides(overrides, &proto, &places));

  FieldProblems problems(places);
  ValidateFields(proto, &problems);
  if (proto.model().ByteSizeLong() == 0) {
    problems.Add("model", "is missing, allowed: builtin, or input and layer");
    return problems.status();
  }
  absl::StatusOr<Model> model = Model::Create(proto.model());
  if (!model.ok()) {
    AddModelProblem(model.status().message(), &problems);
    return problems.status();
  }
  ValidateComputeAgainstModel(proto, *model, &problems);
  ValidateDataAgainstModel(proto, *model, &problems);
  SetDependentDefaults(*model, &proto);
  // A plan with arguments that were refused above would only report them once more, and AUTO goes
  // by nearly all of them.
  const bool can_plan = proto.partition().scheme() == Partition::AUTO
                            ? problems.empty()
                            : !proto.shard().empty() && AreShardRates(proto) &&
                                  proto.partition().scheme() != Partition::SCHEME_UNSPECIFIED &&
                                  IsChunkBytesOrAbsent(proto.limits());
  absl::StatusOr<PlanChoice> choice = absl::UnknownError("not made");
  if (can_plan) {
    choice = ChoosePlan(proto, *model);
    if (choice.ok()) {
      SetChunkLimits(choice->chunk_bytes, proto.mutable_limits());
      ValidateHeldBytes(proto.limits(), &problems);
      ValidateCheckpointBuffer(proto, &problems);
    } else {
      AddPlanProblem(choice.status().message(), &problems);
    }
  }
  if (!problems.empty()) return problems.status();

  ResolvePaths(name, &proto);
  return Config(std::move(proto), *std::move(model), *std::move(choice), std::move(places));
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

}  // namespace ps
