#ifndef EVENSHARD_COMMON_PROCESS_COMMAND_LINE_H_
#define EVENSHARD_COMMON_PROCESS_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace evenshard {

// One flag of a program, and where its value is stored. Unlike with Abseil's flags, a flag may
// repeat, a value may contain commas, and a test can parse any number of times.
struct Flag {
  // The type determines what the flag takes. A bool takes no value. A vector takes one value each
  // time that the flag is given. The others take one value, once; an optional<double> takes a
  // number above 0, or with may_be_zero 0 too.
  using Target =
      std::variant<bool*, int*, std::optional<double>*, std::string*, std::vector<std::string>*>;

  std::string name;   // "config", for --config
  std::string value;  // the name of the value in --help, "FILE"
  std::string help;
  Target target;
  bool required = false;
  // The value of a flag that is given without one. If it is not empty, only --name=value, and not
  // --name value, gives another.
  std::string implied = {};
  // The values that a string may have. If empty, it may have any.
  std::vector<std::string> allowed = {};
  bool may_be_zero = false;
};

// Returns the flag --format, which takes "table" or "json". `format` keeps its value if the flag is
// not given.
Flag FormatFlag(std::string* format);

// Parses `arguments`, which do not include the program's name, as --name=value or --name value and
// writes the values to the flags' targets. Returns whether --help or -h is among the arguments; if
// it is, nothing is checked or written.
//
// Errors: INVALID_ARGUMENT for an unknown flag, with a list of the known ones; a missing,
// superfluous or malformed value; a flag that is given twice; a required flag that is not given;
// and an argument that is not a flag.
absl::StatusOr<bool> ParseFlags(absl::Span<const Flag> flags,
                                absl::Span<const std::string> arguments);

// Returns the text of --help: `usage`, then one line for each flag.
std::string HelpText(absl::string_view usage, absl::Span<const Flag> flags);

// Prints "evenshard 0.1.0" to standard output.
void PrintVersion();

// Prints the error's message to standard error and returns `exit_code`.
int PrintError(const absl::Status& error, int exit_code);

// Refuses a pipe as --config, for a program that reads the config more than once: because `why`.
absl::Status CheckReadableAgain(const std::string& path, absl::string_view why);

// Parses a program's arguments. Returns an exit code if the program is to end: 0 after printing the
// help, or for --version alone the version, to standard output; 2 after printing an error to
// standard error.
std::optional<int> ParseCommandLine(absl::string_view usage, absl::Span<const Flag> flags, int argc,
                                    const char* const* argv);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_COMMAND_LINE_H_
