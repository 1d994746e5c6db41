#include <iostream>
#include <string>

#include "common/command_line.h"
#include "experiments/paper_fit.h"

namespace {

constexpr char kUsage[] =
    "paper_fit [--format=json]\n\n"
    "Explains the speed-ups of the paper by one number, the seconds of an iteration outside of\n"
    "communication: fitted on its figure for 4 workers, and what follows for 8.";
constexpr int kFailure = 1;
constexpr int kUsageError = 2;

}  // namespace

int main(int argc, char** argv) {
  std::string format = "table";
  const ps::Flag flags[] = {{"format", "table|json", "of the output; default: table", &format}};
  if (const auto code = ps::ParseCommandLine(kUsage, flags, argc, argv)) return *code;
  if (format != "table" && format != "json") {
    std::cerr << "--format: is \"" << format << "\", allowed: table, json\n";
    return kUsageError;
  }
  const absl::StatusOr<ps::PaperFit> fit = ps::FitPaper();
  if (!fit.ok()) {
    std::cerr << fit.status().message() << "\n";
    return kFailure;
  }
  std::cout << (format == "json" ? ps::PaperFitJson(*fit) : ps::PaperFitText(*fit));
}
