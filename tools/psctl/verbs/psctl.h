#ifndef EVENSHARD_TOOLS_PSCTL_VERBS_PSCTL_H_
#define EVENSHARD_TOOLS_PSCTL_VERBS_PSCTL_H_

namespace evenshard {

// psctl's exit codes.
inline constexpr int kPsctlOk = 0;
inline constexpr int kPsctlFailure = 1;
inline constexpr int kPsctlUsage = 2;

// The verbs of psctl. Each takes the arguments from its own name on, prints its result to standard
// output and errors to standard error, and returns the exit code.
int PlanVerb(int argc, const char* const* argv);
int AdviseVerb(int argc, const char* const* argv);
int StatsVerb(int argc, const char* const* argv);
int ViewVerb(int argc, const char* const* argv);
int SaveVerb(int argc, const char* const* argv);
int CheckpointsVerb(int argc, const char* const* argv);
int ShutdownVerb(int argc, const char* const* argv);
int CertificatesVerb(int argc, const char* const* argv);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_VERBS_PSCTL_H_
