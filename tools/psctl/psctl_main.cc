// psctl is the operator's tool for a config and its running cluster.

#include <iostream>

#include "absl/strings/string_view.h"
#include "common/process/command_line.h"
#include "common/process/standard_output.h"
#include "tools/psctl/verbs/psctl.h"

namespace {

struct Verb {
  absl::string_view name;
  int (*run)(int argc, const char* const* argv);
  absl::string_view help;
};

constexpr Verb kVerbs[] = {
    {"plan", evenshard::PlanVerb, "predicts what each shard holds and moves, before anything runs"},
    {"advise", evenshard::AdviseVerb, "predicts which way of training is the fastest on a cluster"},
    {"stats", evenshard::StatsVerb, "prints the statistics of the running shards"},
    {"view", evenshard::ViewVerb, "prints which process has which role in a run with recovery"},
    {"save", evenshard::SaveVerb, "writes the running shards' parameters to a file"},
    {"checkpoints", evenshard::CheckpointsVerb, "lists a run's checkpoints, and checks them"},
    {"shutdown", evenshard::ShutdownVerb, "ends the running shards"},
    {"certificates", evenshard::CertificatesVerb,
     "makes a run's certificates and keys, and an authority that signs them"},
};

void PrintUsage(std::ostream& out) {
  out << "Evenshard's psctl: asks about a config and a running cluster.\n\n"
         "psctl VERB --config=FILE [...]\n"
         "psctl VERB [--run=NAME] [...]    for a run that launch has started on this machine;\n"
         "                                 without a name the latest one\n\n"
         "Verbs (psctl VERB --help describes its flags):\n";
  for (const Verb& verb : kVerbs) {
    out << "  " << verb.name << std::string(14 - verb.name.size(), ' ') << verb.help << "\n";
  }
  out << "\nExit code: 0 all went well, 1 something failed, 2 wrong usage or config.\n";
}

int Flushed(int code) {
  return evenshard::FlushStandardOutput("psctl", code, evenshard::kPsctlFailure);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::string_view name = argc > 1 ? argv[1] : "";
  for (const Verb& verb : kVerbs) {
    if (name != verb.name) continue;
    return Flushed(verb.run(argc - 1, argv + 1));
  }
  if (name == "--help" || name == "-h") {
    PrintUsage(std::cout);
    return Flushed(evenshard::kPsctlOk);
  }
  if (name == "--version") {
    evenshard::PrintVersion();
    return Flushed(evenshard::kPsctlOk);
  }
  if (!name.empty()) std::cerr << "psctl: unknown verb \"" << name << "\"\n";
  PrintUsage(std::cerr);
  return evenshard::kPsctlUsage;
}
