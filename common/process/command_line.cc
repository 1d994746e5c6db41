#include "common/process/command_line.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/process/version.h"

namespace evenshard {
namespace {

template <typename T>
bool Holds(const Flag& flag) {
  return std::holds_alternative<T>(flag.target);
}

// "--config=FILE"
std::string Form(const Flag& flag) {
  if (Holds<bool*>(flag)) return absl::StrCat("--", flag.name);
  if (!flag.implied.empty()) return absl::StrCat("--", flag.name, "[=", flag.value, "]");
  return absl::StrCat("--", flag.name, "=", flag.value);
}

absl::Status Assign(const Flag& flag, const std::string& value) {
  if (value.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.name, " needs a value: ", Form(flag)));
  }
  if (!flag.allowed.empty() && !absl::c_linear_search(flag.allowed, value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag.name, ": is \"", value, "\", allowed: ", absl::StrJoin(flag.allowed, ", ")));
  }
  if (Holds<std::string*>(flag)) {
    *std::get<std::string*>(flag.target) = value;
  } else if (Holds<std::vector<std::string>*>(flag)) {
    std::get<std::vector<std::string>*>(flag.target)->push_back(value);
  } else if (Holds<int*>(flag)) {
    if (!absl::SimpleAtoi(value, std::get<int*>(flag.target))) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, ": \"", value, "\" is not a whole number"));
    }
  } else {
    double number = 0;
    if (!absl::SimpleAtod(value, &number) || !std::isfinite(number) || number < 0 ||
        (number == 0 && !flag.may_be_zero)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, ": is \"", value,
                       "\", allowed: ", flag.may_be_zero ? "0 or " : "", "a number above 0"));
    }
    *std::get<std::optional<double>*>(flag.target) = number;
  }
  return absl::OkStatus();
}

}  // namespace

Flag FormatFlag(std::string* format) {
  return {.name = "format",
          .value = "table|json",
          .help = "format of the output; default: table",
          .target = format,
          .allowed = {"table", "json"}};
}

void PrintVersion() { std::cout << "evenshard " EVENSHARD_VERSION "\n"; }

int PrintError(const absl::Status& error, int exit_code) {
  std::cerr << error.message() << "\n";
  return exit_code;
}

absl::StatusOr<bool> ParseFlags(absl::Span<const Flag> flags,
                                absl::Span<const std::string> arguments) {
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const std::string& a) { return a == "--help" || a == "-h"; })) {
    return true;
  }
  std::set<std::string> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", argument, "\" is not expected here: flags begin with --"));
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto flag =
        std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name == name; });
    if (flag == flags.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag --", name, "; known are ",
          absl::StrJoin(flags, ", ",
                        [](std::string* out, const Flag& f) { absl::StrAppend(out, Form(f)); }),
          " and --help"));
    }
    if (!given.insert(name).second && !Holds<std::vector<std::string>*>(*flag)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " is given twice"));
    }

    if (Holds<bool*>(*flag)) {
      if (equals != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
      }
      *std::get<bool*>(flag->target) = true;
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (!flag->implied.empty()) {
      value = flag->implied;
    } else if (i + 1 < arguments.size() && arguments[i + 1].rfind("--", 0) != 0) {
      value = arguments[++i];
    }
    RETURN_IF_ERROR(Assign(*flag, value));
  }
  for (const Flag& flag : flags) {
    if (flag.required && given.count(flag.name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(Form(flag), " is missing"));
    }
  }
  return false;
}

std::string HelpText(absl::string_view usage, absl::Span<const Flag> flags) {
  std::vector<std::string> forms = {"--version"};
  for (const Flag& flag : flags) forms.push_back(Form(flag));
  size_t width = 0;
  for (const std::string& form : forms) width = std::max(width, form.size());

  std::string text = absl::StrCat(usage, "\n\nFlags:\n");
  const auto append = [&](const std::string& form, absl::string_view help) {
    absl::StrAppend(&text, "  ", form, std::string(width - form.size() + 2, ' '), help, "\n");
  };
  for (const Flag& flag : flags) append(Form(flag), flag.help);
  append("--help", "prints this");
  append("--version", "prints the version");
  return text;
}

absl::Status CheckReadableAgain(const std::string& path, absl::string_view why) {
  std::error_code error;
  if (!std::filesystem::is_fifo(std::filesystem::status(path, error))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--config: ", path, " is a pipe, which can be read once, and ", why, ", allowed: a file"));
}

std::optional<int> ParseCommandLine(absl::string_view usage, absl::Span<const Flag> flags, int argc,
                                    const char* const* argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments == std::vector<std::string>{"--version"}) {
    PrintVersion();
    return 0;
  }
  const absl::StatusOr<bool> help = ParseFlags(flags, arguments);
  if (!help.ok()) return PrintError(help.status(), 2);
  if (*help) {
    std::cout << HelpText(usage, flags);
    return 0;
  }
  return std::nullopt;
}

}  // namespace evenshard
