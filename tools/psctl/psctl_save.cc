#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/save_model.h"
#include "tools/psctl/shard_calls.h"

namespace ps {
namespace {

constexpr char kUsage[] =
    "bazel-bin/tools/psctl/psctl save --config=FILE --out=FILE [--set field=value ...]\n\n"
    "Writes the parameters of all running shards to one file in the safetensors layout. The file\n"
    "appears whole or not at all. If the run goes on meanwhile, different chunks may be from\n"
    "different iterations.";

// How long the ps processes may take to say which model the workers have brought.
constexpr absl::Duration kModelTimeout = absl::Seconds(5);

}  // namespace

int SaveVerb(int argc, const char* const* argv) {
  std::string path;
  std::string out;
  std::vector<std::string> overrides;
  std::string log_level;
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &path, true},
      {"out", "FILE", "the file to write, usually *.safetensors", &out, true},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated", &overrides},
      LogLevelFlag(&log_level),
  };
  if (const auto code = ParseCommandLine(kUsage, flags, argc, argv)) return *code;
  SetUpLog("psctl", log_level);
  const absl::StatusOr<Config> config = LoadWithModel(path, overrides, kModelTimeout);
  if (!config.ok()) {
    std::cerr << config.status().message() << "\n";
    return kPsctlUsage;
  }
  if (const absl::Status status = SaveModel(*config, out); !status.ok()) {
    std::cerr << "the model was not saved: " << status.message() << "\n";
    return kPsctlFailure;
  }
  std::cout << "saved " << config->model().name() << ", "
            << FormatCount(config->model().parameter_count()) << " parameters, to " << out << "\n";
  return kPsctlOk;
}

}  // namespace ps
