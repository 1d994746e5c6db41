#include "common/config/config.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/config/config_contract.h"
#include "common/config/config_validation.h"
#include "common/config/text/config_overrides.h"
#include "common/config/text/config_text.h"

namespace evenshard {
namespace {

// Far larger than any config. It bounds what is read of a file like /dev/zero.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

// As long as torch.distributed waits by default.
constexpr absl::Duration kProgramPatience = absl::Minutes(30);

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

}  // namespace

Config::Config(std::shared_ptr<const Source> source, ClusterConfig proto,
               std::shared_ptr<const FieldPlaces> places)
    : source_(std::move(source)), proto_(std::move(proto)), places_(std::move(places)) {}

absl::StatusOr<Config> Config::Load(const std::string& path,
                                    absl::Span<const std::string> overrides) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Source> source, Read(path, overrides));
  return Make(std::move(source));
}

absl::StatusOr<Config> Config::Parse(absl::string_view text, const std::string& name,
                                     absl::Span<const std::string> overrides) {
  return Make(std::make_shared<const Source>(
      Source{std::string(text), name, std::vector(overrides.begin(), overrides.end())}));
}

absl::StatusOr<std::shared_ptr<const Config::Source>> Config::Read(
    const std::string& path, absl::Span<const std::string> overrides) {
  ASSIGN_OR_RETURN(std::string text, ReadConfigFile(path));
  return std::make_shared<const Source>(
      Source{std::move(text), path, std::vector(overrides.begin(), overrides.end())});
}

absl::StatusOr<Config> Config::Unchecked(std::shared_ptr<const Source> source) {
  const std::string& name = source->name;
  if (absl::StripAsciiWhitespace(source->text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ":1: is empty, allowed: a ClusterConfig as docs/configuration.md describes it"));
  }
  ClusterConfig proto;
  auto places = std::make_shared<FieldPlaces>(name);
  const std::vector<TextProblem> text_problems = ParseText(source->text, &proto, places.get());
  if (!text_problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrJoin(text_problems, "\n", [&name](std::string* out, const TextProblem& problem) {
          absl::StrAppend(out, name, ":", problem.line, ": ", problem.ToString());
        }));
  }
  RETURN_IF_ERROR(ApplyOverrides(source->overrides, &proto, places.get()));

  return Config(std::move(source), std::move(proto), std::move(places));
}

absl::StatusOr<Config> Config::Make(std::shared_ptr<const Source> source) {
  ASSIGN_OR_RETURN(Config config, Unchecked(std::move(source)));
  FieldProblems problems(*config.places_);
  config.Check(&problems);
  if (!problems.empty()) return problems.status();
  config.ResolvePaths();
  return config;
}

void Config::Check(FieldProblems* problems) {
  if (proto_.has_optimizer()) SetOuterKind(&proto_);  // whose numbers are checked
  ValidateFields(proto_, problems);
  if (proto_.model().ByteSizeLong() == 0) {
    problems->Add("model", "is missing, allowed: builtin, input and layer, or from_workers");
  }
  SetDefaults(&proto_);
}

void Config::ResolvePaths() {
  // Without a name nobody uses the paths, and a config that is written from this one keeps them.
  if (const std::string& name = proto_.security().name(); !name.empty()) {
    VisitSecurityPaths(&proto_, [&name](std::string* path) {
      absl::StrReplaceAll({{"{name}", name}}, path);
    });
  }
  const size_t slash = source_->name.rfind('/');
  if (slash == std::string::npos) return;
  const std::string folder = source_->name.substr(0, slash + 1);
  VisitPaths(&proto_, [&folder](std::string* path) {
    if (!path->empty() && !absl::StartsWith(*path, "/")) path->insert(0, folder);
  });
}

absl::Duration Config::worker_patience() const {
  const Limits& limits = proto_.limits();
  if (is_from_workers() && !limits.has_exchange_seconds()) return kProgramPatience;
  return absl::Seconds(limits.exchange_seconds());
}

absl::Status Config::CheckOwnModel() const {
  if (!is_from_workers()) return absl::OkStatus();
  return FieldError("model.from_workers",
                    "is for programs that bring a model and train it, allowed here: builtin, or "
                    "input and layer");
}

absl::Status Config::CheckHasShards() const {
  if (!is_ring()) return absl::OkStatus();
  return FieldError("topology",
                    "is RING, which has no shards: each worker has the whole model and prints its "
                    "own figures, which --summary and --save of `worker` and `launch` write, "
                    "allowed here: PARAMETER_SERVER");
}

const std::string& Config::process_address(int process) const {
  return process < shards() ? address(process)
                            : proto_.recovery().spare(process - shards()).address();
}

absl::Status Config::FieldError(absl::string_view field, absl::string_view problem) const {
  FieldProblems problems(*places_);
  problems.Add(field, problem);
  return problems.status();
}

}  // namespace evenshard
