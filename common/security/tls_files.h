#ifndef EVENSHARD_COMMON_SECURITY_TLS_FILES_H_
#define EVENSHARD_COMMON_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/identity.h"
#include "proto/config.pb.h"

namespace evenshard {

// An end that is nearer than this is worth a line in the log.
inline constexpr absl::Duration kExpiryNotice = absl::Hours(7 * 24);

// What the files of `security` say.
struct TlsIdentity {
  Identity identity;
  absl::Time ends;  // of the certificate
};

// Reads the three files, and checks that they are what the process needs: certificates and a key in
// PEM, a key that others cannot read and that belongs to the certificate, a certificate which the
// authority has signed, which is valid at `now`, and which names this process (Security::name).
// Errors: FAILED_PRECONDITION or NOT_FOUND with the field, the file and what is allowed.
// REQUIRES: security.certificate is set.
absl::StatusOr<TlsIdentity> ReadTlsFiles(const Security& security, absl::Time now);

// Checks what a config says before a process of the run listens or connects: the files of
// `security` and recovery.etcd, if there are any; otherwise that all addresses are of this host, or
// that security.insecure is set. Errors: those of ReadTlsFiles; FAILED_PRECONDITION for an address
// of other hosts.
absl::Status CheckSecurity(const ClusterConfig& config);

// Does the same for a process that logs. A line in the log: that it is insecure.
absl::Status CheckAndLogSecurity(const ClusterConfig& config);
// A line in the log if the certificate ends soon, or cannot be used any more. Called when a process
// first uses it, and now and then while the process runs (common/security/expiry_watch.h).
void LogExpiry(const Security& security);

// Whether others may reach `address` in plaintext: those on this host may, and with
// security.insecure everybody.
bool AllowsPlaintext(const Security& security, absl::string_view address);

// The override of a config by which a process says who it is, "security.name=shard-0". A negative
// index, which the process refuses once it has read the config, becomes 0.
std::string NameOverride(ProcessName self);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_TLS_FILES_H_
