// wire measures how fast gradients and parameters are exchanged, compared with raw sockets that do
// the same work.

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/wire/wire_measure.h"
#include "bench/wire/wire_report.h"
#include "bench/wire/wire_role.h"
#include "common/base/status_macros.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/wire/encoding.h"

namespace {

constexpr char kUsage[] =
    "wire: exchanges a whole model between real processes, by Evenshard and by raw sockets in\n"
    "turn. Verifies what both compute, then measures goodput, CPU time, latency and memory.\n"
    "Lists are separated by commas. Exit code: 0, 1 after a failure, 2 for a wrong command line.";

struct CommandLine {
  bool quick = false;
  std::string format = "table";
  std::string workers;
  std::string shards;
  std::string transports;
  int repeat = 0;
  std::string model = "vgg16";
  std::string encoding = "float32";
  std::vector<std::string> limits;
  evenshard::WireRole role;
};

// A temporary folder for sockets, which the destructor removes.
class SocketFolder {
 public:
  SocketFolder() {
    std::string path = std::filesystem::temp_directory_path() / "wire.XXXXXX";
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~SocketFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  // The path is empty if the folder could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Parses a list such as "1,2,4". An empty text gives `otherwise`.
absl::StatusOr<std::vector<int>> Counts(const std::string& flag, const std::string& text,
                                        const std::vector<int>& otherwise) {
  if (text.empty()) return otherwise;
  std::vector<int> counts;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    int count = 0;
    if (!absl::SimpleAtoi(item, &count) || count < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": \"", item, "\" is not a whole number above 0"));
    }
    counts.push_back(count);
  }
  return counts;
}

// Returns the limits of the command line and, for those that it does not set, the sizes with which
// this program's figures in docs/performance.md were measured. A config would choose smaller chunks
// for models that are small or have many shards.
std::vector<std::string> Limits(const std::vector<std::string>& given) {
  std::vector<std::string> limits = given;
  const std::string all = absl::StrJoin(given, " ");
  for (const auto& [field, bytes] :
       {std::pair("chunk_bytes", 640 << 10), std::pair("window_bytes", 640 << 10),
        std::pair("lead_bytes", 2 << 20)}) {
    if (!absl::StrContains(all, field)) limits.push_back(absl::StrCat(field, ": ", bytes));
  }
  return limits;
}

absl::StatusOr<evenshard::WireOptions> Options(const CommandLine& command) {
  evenshard::WireOptions options;
  options.model = command.model;
  options.limits = Limits(command.limits);
  options.log_level = command.role.log_level;
  ASSIGN_OR_RETURN(options.workers,
                   Counts("workers", command.workers,
                          command.quick ? std::vector<int>{1} : std::vector<int>{1, 2, 4, 8}));
  ASSIGN_OR_RETURN(options.shards,
                   Counts("shards", command.shards,
                          command.quick ? std::vector<int>{1} : std::vector<int>{1, 2, 4}));
  options.transports = {"tcp", "unix", "shared"};
  if (!command.transports.empty()) options.transports = absl::StrSplit(command.transports, ',');
  for (const std::string& transport : options.transports) {
    if (transport != "tcp" && transport != "unix" && transport != "shared") {
      return absl::InvalidArgumentError(
          absl::StrCat("--transports: \"", transport, "\" is not tcp, unix or shared"));
    }
  }
  if (!evenshard::Encoding_Parse(absl::AsciiStrToUpper(command.encoding), &options.encoding)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--encoding: \"", command.encoding, "\" is not one of ",
        absl::AsciiStrToLower(evenshard::EncodingNames([](evenshard::Encoding) { return true; }))));
  }
  if (command.format != "table" && command.format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: \"", command.format, "\" is not table or json"));
  }
  if (command.repeat < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--repeat=", command.repeat, " is not above 0"));
  }
  if (command.quick) {
    options.repeat = 3;
    options.latency_count = 500;
    options.window_seconds = 0.5;
    options.raw_chunk_bytes = {1 << 20};
    options.raw_socket_buffer_bytes = {0};
  }
  if (command.repeat > 0) options.repeat = command.repeat;
  return options;
}

int Run(const CommandLine& command, int argc, char** argv) {
  absl::StatusOr<evenshard::WireOptions> options = Options(command);
  if (!options.ok()) {
    std::cerr << options.status().message() << "\n";
    return 2;
  }
  const evenshard::WireOrigin origin = evenshard::DescribeOrigin(argc, argv);
  const evenshard::Interrupts interrupts;
  const SocketFolder folder;
  absl::StatusOr<evenshard::WireResults> results =
      folder.path().empty() ? absl::ErrnoToStatus(errno, "no folder for sockets")
                            : evenshard::MeasureWire(*options, folder.path(), &interrupts);
  if (!results.ok()) {
    std::cerr << results.status().message() << "\n";
    return 1;
  }
  std::cout << (command.format == "json" ? evenshard::WireJson(origin, *results)
                                         : evenshard::WireTable(origin, *results));
  return std::cout.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine command;
  evenshard::WireRole& role = command.role;
  evenshard::Flag log_level = evenshard::LogLevelFlag(&role.log_level);
  log_level.help = "the least severe level that Evenshard's processes log; default warning";
  const std::vector<evenshard::Flag> flags = {
      {.name = "quick",
       .value = "",
       .help = "takes less than 50 s, with 1 worker and 1 shard",
       .target = &command.quick},
      {.name = "format",
       .value = "FORMAT",
       .help = "table (default) or json",
       .target = &command.format},
      {.name = "workers",
       .value = "LIST",
       .help = "numbers of workers; default 1,2,4,8 (--quick: 1)",
       .target = &command.workers},
      {.name = "shards",
       .value = "LIST",
       .help = "numbers of shards; default 1,2,4 (--quick: 1)",
       .target = &command.shards},
      {.name = "transports",
       .value = "LIST",
       .help = "some of tcp, unix and shared; default all",
       .target = &command.transports},
      {.name = "repeat",
       .value = "N",
       .help = "windows of each system; default 5 (--quick: 3)",
       .target = &command.repeat},
      {.name = "model",
       .value = "NAME",
       .help = "a built-in model; default vgg16",
       .target = &command.model},
      {.name = "encoding",
       .value = "ENCODING",
       .help = "float32 (default), float16 or bfloat16, for Evenshard's gradients and parameters; "
               "raw sockets always send float32",
       .target = &command.encoding},
      {.name = "limit",
       .value = "\"FIELD: VALUE\"",
       .help =
           "sets a field of Evenshard's `limits`, as in \"connections: 4\"; repeatable. Default: "
           "chunk_bytes and window_bytes of 640 KiB, lead_bytes of 2 MiB",
       .target = &command.limits},
      log_level,
      {.name = "role",
       .value = "ROLE",
       .help = "shard or worker; the program sets this and the flags below for its own processes",
       .target = &role.role},
      {.name = "system", .value = "SYSTEM", .help = "ps or raw", .target = &role.system},
      {.name = "index",
       .value = "I",
       .help = "number of the shard or rank of the worker",
       .target = &role.index},
      {.name = "config",
       .value = "TEXT",
       .help = "ClusterConfig of the cluster",
       .target = &role.config},
      {.name = "addresses",
       .value = "LIST",
       .help = "addresses of the shards",
       .target = &role.addresses},
      {.name = "socket-buffer",
       .value = "BYTES",
       .help = "buffer size of raw sockets",
       .target = &role.socket_buffer_bytes},
  };
  const std::optional<int> exit_code = evenshard::ParseCommandLine(kUsage, flags, argc, argv);
  if (exit_code.has_value()) return *exit_code;
  return role.role.empty() ? Run(command, argc, argv) : evenshard::RunWireRole(role);
}
