#include "common/process/log.h"

#include <grpc/support/log.h>

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/text.h"
#include "common/process/standard_output.h"
#include "common/security/refusal_log.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// What gRPC writes for each TLS handshake that fails: somebody who may be nobody of the run.
constexpr absl::string_view kHandshake = "Handshake failed";

void LogGrpc(gpr_log_func_args* line) {
  if (absl::StartsWith(line->message, kHandshake)) {
    LogRefusal(absl::StrCat("a connection by TLS: ", ExplainTls(Printable(line->message))));
    return;
  }
  const auto level =
      line->severity == GPR_LOG_SEVERITY_DEBUG ? spdlog::level::trace : spdlog::level::debug;
  spdlog::log(level, "gRPC: {} ({}:{})", Printable(line->message), line->file, line->line);
}

gpr_log_severity GrpcVerbosity(spdlog::level::level_enum level) {
  if (level == spdlog::level::trace) return GPR_LOG_SEVERITY_DEBUG;
  return level == spdlog::level::debug ? GPR_LOG_SEVERITY_INFO : GPR_LOG_SEVERITY_ERROR;
}

}  // namespace

std::optional<int> StartProgram(const std::string& name, absl::string_view usage,
                                absl::Span<const Flag> flags, int argc, const char* const* argv) {
  std::string level;
  std::vector<std::string> allowed;
  for (const auto& each : SPDLOG_LEVEL_NAMES) allowed.emplace_back(each.data(), each.size());
  std::vector<Flag> all(flags.begin(), flags.end());
  all.push_back({.name = "log_level",
                 .value = "LEVEL",
                 .help = "the least severe level to log: trace, debug, info (the default), "
                         "warning, error, critical or off",
                 .target = &level,
                 .allowed = allowed});
  if (const auto code = ParseCommandLine(usage, all, argc, argv)) {
    return FlushStandardOutput(name, *code, /*failure=*/1);
  }
  SetUpLog(name, level);
  return std::nullopt;
}

void SetUpLog(const std::string& program, const std::string& level) {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      program, std::make_shared<spdlog::sinks::stderr_color_sink_mt>()));
  spdlog::set_pattern("%H:%M:%S.%e %^%l%$ %v");
  if (!level.empty()) spdlog::set_level(spdlog::level::from_str(level));
  gpr_set_log_verbosity(GrpcVerbosity(spdlog::get_level()));
  gpr_set_log_function(LogGrpc);
}

int LogError(const absl::Status& error, int exit_code) {
  spdlog::error("{}", std::string(error.message()));
  return exit_code;
}

}  // namespace evenshard
