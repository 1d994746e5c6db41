#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "tools/psctl/certificates/run_certificates.h"
#include "tools/psctl/verbs/psctl.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl certificates --config=FILE --out=DIR [--days=N] [--set field=value ...]\n\n"
    "Makes what a run needs for mTLS, for people who have no certificate authority: in DIR an\n"
    "authority, and a certificate and a key for each shard and spare, for each worker, for the\n"
    "operator and for a reader. Prints the section `security` for the config.\n\n"
    "With an authority in DIR, that one signs, and the certificates and keys of the processes are\n"
    "replaced: for certificates that end soon, or a run that has grown. No certificate is valid\n"
    "for longer than the authority, which is made for ten years. docs/security.md has all steps.";

constexpr int kMaxDays = 3650;
constexpr absl::Duration kDay = absl::Hours(24);

std::string WithoutSlashAtEnd(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

int CertificatesVerb(int argc, const char* const* argv) {
  std::string path;
  std::string out;
  int days = 365;
  std::vector<std::string> overrides;
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &path, true},
      {"out", "DIR", "the folder for the files; made if it is not there", &out, true},
      {"days", "N", "for how long the processes' certificates are valid; default: 365", &days},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated", &overrides},
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  if (days < 1 || days > kMaxDays) {
    std::cerr << "--days: is " << days << ", allowed: 1 to " << kMaxDays << "\n";
    return kPsctlUsage;
  }
  const absl::StatusOr<Config> config = Config::Load(path, overrides);
  if (!config.ok()) return PrintError(config.status(), kPsctlUsage);
  const absl::StatusOr<RunCertificates> written =
      WriteRunCertificates(*config, WithoutSlashAtEnd(out), absl::Now(), days * kDay);
  if (!written.ok()) return PrintError(written.status(), kPsctlFailure);
  std::cout << RunCertificatesText(*written, *config, path);
  return kPsctlOk;
}

}  // namespace evenshard
