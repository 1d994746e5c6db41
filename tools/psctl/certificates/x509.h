#ifndef EVENSHARD_TOOLS_PSCTL_CERTIFICATES_X509_H_
#define EVENSHARD_TOOLS_PSCTL_CERTIFICATES_X509_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/openssl.h"

// Keys and certificates, by OpenSSL's library.

namespace evenshard {

// Makes a key of the curve P-256.
absl::StatusOr<Key> MakeKey();

// What a certificate says, besides its key and its issuer.
struct CertificateContent {
  std::string name;  // the subject's common name, of at most 64 bytes
  absl::Time begins;
  absl::Time ends;
  // Extensions in the words of x509v3_config(5), {NID_key_usage, "critical,digitalSignature"}.
  std::vector<std::pair<int, const char*>> extensions;
  // The subject's alternative names: a URI, and IP addresses and DNS names. No URI: none of them.
  std::string uri = {};
  std::vector<std::string> hosts = {};
};

// Makes a certificate of `key` with a random serial number, signed by the issuer. With a null
// `issuer` the certificate is its own, and `issuer_key` must be `key`.
absl::StatusOr<Certificate> MakeCertificate(const CertificateContent& content, EVP_PKEY* key,
                                            X509* issuer, EVP_PKEY* issuer_key);

// PEM. What is parsed is the first certificate of the text, and a key without a password; null if
// there is none.
Certificate ParseCertificate(const std::string& pem);
Key ParseKey(const std::string& pem);
absl::StatusOr<std::string> ToPem(const X509* certificate);
absl::StatusOr<std::string> ToPem(const EVP_PKEY* key);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_CERTIFICATES_X509_H_
