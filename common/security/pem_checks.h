#ifndef EVENSHARD_COMMON_SECURITY_PEM_CHECKS_H_
#define EVENSHARD_COMMON_SECURITY_PEM_CHECKS_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// What must be true of a file with a certificate or a key. Errors: FAILED_PRECONDITION, beginning
// with `file` as the caller has named it, with what is allowed; those of the system.

namespace evenshard {

absl::Status HasNoCertificate(absl::string_view file);
absl::Status HasNoKey(absl::string_view file);

// Who besides the owner may read a key.
enum class KeyReaders { kNobody, kGroup };
absl::Status CheckMode(absl::string_view file, FILE* key, KeyReaders readers);

// Checks that the key is that of `certificate`, which is in another file.
absl::Status CheckIsKeyOf(absl::string_view file, EVP_PKEY* key, const X509* certificate,
                          absl::string_view certificate_file);

// Checks that the certificate is valid at `now`. `renewal` says, in an error about one that has
// expired, how to come by another.
absl::Status CheckTimes(absl::string_view file, const X509* certificate, absl::Time now,
                        absl::string_view renewal = "");

// "2027-01-15 08:00 UTC"
std::string FormatMinute(absl::Time time);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_PEM_CHECKS_H_
