#ifndef EVENSHARD_TOOLS_PSCTL_CERTIFICATES_RUN_CERTIFICATES_H_
#define EVENSHARD_TOOLS_PSCTL_CERTIFICATES_RUN_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config.h"
#include "tools/psctl/certificates/authority.h"

namespace evenshard {

// What has been written for a run.
struct RunCertificates {
  struct OfProcess {
    Subject subject;
    absl::Time ends;
  };
  std::string folder;
  bool authority_is_new;
  absl::Time authority_ends;
  std::vector<OfProcess> processes;
};

// Writes a key and a certificate for each process of a run into a folder, signed by the authority
// that is there, or by a new one. Errors: those of CertificateFolder (certificate_folder.h). What
// has been written until then stays.
absl::StatusOr<RunCertificates> WriteRunCertificates(const Config& config,
                                                     const std::string& folder, absl::Time now,
                                                     absl::Duration lifetime);

// What an operator needs to know: a table of the files, the section `security` for the run's
// config, which is the file `config_path`, and which files each host needs.
std::string RunCertificatesText(const RunCertificates& certificates, const Config& config,
                                const std::string& config_path);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_CERTIFICATES_RUN_CERTIFICATES_H_
