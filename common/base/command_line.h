#ifndef PS_COMMON_BASE_COMMAND_LINE_H_
#define PS_COMMON_BASE_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ps {

// One flag of a program, and where its value goes. Unlike absl's flags: a flag may
// repeat, values may hold commas, and tests can parse as often as they like.
struct Flag {
  // The type says what the flag takes: bool, no value; a vector, one value each time
  // that the flag is given; the others, one value once.
  using Target =
      std::variant<bool*, int*, std::optional<double>*, std::string*, std::vector<std::string>*>;

  std::string name;   // "config", for --config
  std::string value;  // what --help calls the value: "FILE"
  std::string help;
  Target target;
  bool required = false;
  // Taken where the flag is given without a value; only --name=value gives one then.
  std::string implied = {};
  // The only values that a string may have; empty: it may have any.
  std::vector<std::string> allowed = {};
};

// Takes `arguments` (without the program's name) as --name=value or --name value and
// writes them to the flags' targets. Returns whether --help was among them; then
// nothing is checked or written.
//
// Errors: INVALID_ARGUMENT for an unknown flag (lists the known ones), a missing,
// superfluous or malformed value, a flag given twice, a required one not given, and
// anything that is not a flag.
absl::StatusOr<bool> ParseFlags(absl::Span<const Flag> flags,
                                absl::Span<const std::string> arguments);

// The text of --help: `usage`, then a line per flag.
std::string HelpText(absl::string_view usage, absl::Span<const Flag> flags);

// What main() does first: parses argv. Returns the exit code where the program ends
// here: 0 after --help, printed to standard output; 2 after an error, printed to
// standard error. Otherwise nothing.
std::optional<int> ParseCommandLine(absl::string_view usage, absl::Span<const Flag> flags, int argc,
                                    const char* const* argv);

}  // namespace ps

#endif  // PS_COMMON_BASE_COMMAND_LINE_H_
