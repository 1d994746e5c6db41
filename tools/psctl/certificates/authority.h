#ifndef EVENSHARD_TOOLS_PSCTL_CERTIFICATES_AUTHORITY_H_
#define EVENSHARD_TOOLS_PSCTL_CERTIFICATES_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/psctl/certificates/x509.h"

namespace evenshard {

// What the authority's files are called, in errors too.
inline constexpr char kAuthorityCertificateFile[] = "authority.pem";
inline constexpr char kAuthorityKeyFile[] = "authority.key";

// A certificate and its key, in PEM.
struct PemPair {
  std::string certificate;
  std::string key;
};

// Whom a certificate is of.
struct Subject {
  std::string name;                // the common name, "shard-0"
  std::string uri;                 // evenshard://RUN/shard/0 (common/security/identity.h)
  std::vector<std::string> hosts;  // the IP addresses and DNS names at which it is reached, if any
};

// Signs the certificates of a run's processes, for people who have no certificate authority.
class Authority {
 public:
  // Makes an authority that is valid for ten years.
  static absl::StatusOr<Authority> Make(absl::Time now);

  // Takes up one that was made before. Errors: FAILED_PRECONDITION, beginning with the name of the
  // file that is wrong, if it cannot be read or is not valid at `now`, if the certificate is none
  // of an authority that has signed itself, and if the key belongs to another certificate.
  static absl::StatusOr<Authority> Parse(const PemPair& pem, absl::Time now);

  struct Issued {
    PemPair pem;
    absl::Time ends;
  };
  // Makes a key and a certificate, with which a process can be client and server. It is valid for
  // `lifetime`, but not longer than the authority.
  absl::StatusOr<Issued> Issue(const Subject& subject, absl::Time now,
                               absl::Duration lifetime) const;

  absl::StatusOr<PemPair> ToPem() const;
  absl::Time ends() const { return EndOf(certificate_.get()); }

 private:
  Authority(Certificate certificate, Key key);

  Certificate certificate_;
  Key key_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_CERTIFICATES_AUTHORITY_H_
