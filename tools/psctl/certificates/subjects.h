#ifndef EVENSHARD_TOOLS_PSCTL_CERTIFICATES_SUBJECTS_H_
#define EVENSHARD_TOOLS_PSCTL_CERTIFICATES_SUBJECTS_H_

#include <vector>

#include "common/config/config.h"
#include "tools/psctl/certificates/authority.h"

namespace evenshard {

// Everybody in a run who needs a certificate: the ps processes, spares included, the workers, the
// operator and a reader. Those whose addresses the config has are known by their hosts too, unless
// the address is a unix socket, or 0.0.0.0 or [::], which is no host's.
std::vector<Subject> SubjectsOf(const Config& config);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_CERTIFICATES_SUBJECTS_H_
