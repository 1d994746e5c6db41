#include "tools/psctl/certificates/authority.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "common/base/status_macros.h"
#include "common/security/pem_checks.h"

namespace evenshard {
namespace {

constexpr int kAuthorityYears = 10;
// Hosts whose clocks are behind by less can use a certificate at once.
constexpr absl::Duration kClocksDiffer = absl::Minutes(5);

absl::Time YearsLater(absl::Time now, int years) {
  const absl::TimeZone utc = absl::UTCTimeZone();
  const absl::CivilSecond civil = absl::ToCivilSecond(now, utc);
  return absl::FromCivil(absl::CivilSecond(civil.year() + years, civil.month(), civil.day(),
                                           civil.hour(), civil.minute(), civil.second()),
                         utc);
}

absl::Status CheckIsAuthority(X509* certificate) {
  const bool may_sign = X509_check_ca(certificate) == 1;
  const bool is_root = X509_self_signed(certificate, /*verify_signature=*/1) == 1;
  ERR_clear_error();
  if (may_sign && is_root) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kAuthorityCertificateFile,
                   may_sign ? " is not signed by itself" : " may not sign certificates",
                   ", allowed: the certificate of an authority (CA:TRUE, keyCertSign) that has "
                   "signed itself"));
}

}  // namespace

Authority::Authority(Certificate certificate, Key key)
    : certificate_(std::move(certificate)), key_(std::move(key)) {}

absl::StatusOr<Authority> Authority::Make(absl::Time now) {
  const CertificateContent content = {
      .name = "Evenshard authority",
      .begins = now - kClocksDiffer,
      .ends = YearsLater(now, kAuthorityYears),
      .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                     {NID_key_usage, "critical,keyCertSign"},
                     {NID_subject_key_identifier, "hash"},
                     {NID_authority_key_identifier, "keyid:always"}}};
  ASSIGN_OR_RETURN(Key key, MakeKey());
  ASSIGN_OR_RETURN(Certificate certificate,
                   MakeCertificate(content, key.get(), /*issuer=*/nullptr, key.get()));
  return Authority(std::move(certificate), std::move(key));
}

absl::StatusOr<Authority> Authority::Parse(const PemPair& pem, absl::Time now) {
  Certificate certificate = ParseCertificate(pem.certificate);
  if (certificate == nullptr) return HasNoCertificate(kAuthorityCertificateFile);
  Key key = ParseKey(pem.key);
  if (key == nullptr) return HasNoKey(kAuthorityKeyFile);
  RETURN_IF_ERROR(CheckIsAuthority(certificate.get()));
  RETURN_IF_ERROR(CheckTimes(kAuthorityCertificateFile, certificate.get(), now,
                             " (without authority.pem and authority.key a new one is made, which "
                             "every process then needs)"));
  RETURN_IF_ERROR(
      CheckIsKeyOf(kAuthorityKeyFile, key.get(), certificate.get(), kAuthorityCertificateFile));
  return Authority(std::move(certificate), std::move(key));
}

absl::StatusOr<Authority::Issued> Authority::Issue(const Subject& subject, absl::Time now,
                                                   absl::Duration lifetime) const {
  const CertificateContent content = {
      .name = subject.name,
      .begins = now - kClocksDiffer,
      .ends = std::min(now + lifetime, ends()),
      .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                     {NID_key_usage, "critical,digitalSignature"},
                     {NID_ext_key_usage, "clientAuth,serverAuth"},
                     {NID_subject_key_identifier, "hash"},
                     {NID_authority_key_identifier, "keyid:always"}},
      .uri = subject.uri,
      .hosts = subject.hosts};
  ASSIGN_OR_RETURN(const Key key, MakeKey());
  ASSIGN_OR_RETURN(const Certificate certificate,
                   MakeCertificate(content, key.get(), certificate_.get(), key_.get()));
  Issued issued;
  issued.ends = EndOf(certificate.get());
  ASSIGN_OR_RETURN(issued.pem.certificate, evenshard::ToPem(certificate.get()));
  ASSIGN_OR_RETURN(issued.pem.key, evenshard::ToPem(key.get()));
  return issued;
}

absl::StatusOr<PemPair> Authority::ToPem() const {
  PemPair pem;
  ASSIGN_OR_RETURN(pem.certificate, evenshard::ToPem(certificate_.get()));
  ASSIGN_OR_RETURN(pem.key, evenshard::ToPem(key_.get()));
  return pem;
}

}  // namespace evenshard
