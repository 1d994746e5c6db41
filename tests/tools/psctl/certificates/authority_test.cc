#include "tools/psctl/certificates/authority.h"

#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "tools/psctl/certificates/x509.h"

namespace evenshard {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);  // 2027-01-15 08:00 UTC
constexpr absl::Duration kDay = absl::Hours(24);
const Subject kShard = {.name = "shard-0",
                        .uri = "evenshard://digits/shard/0",
                        .hosts = {"10.0.0.1", "fd00::1", "ps0.example.org"}};

Authority Made() {
  auto authority = Authority::Make(kNow);
  REQUIRE(authority.ok());
  return *std::move(authority);
}

PemPair PemOf(const Authority& authority) {
  const auto pem = authority.ToPem();
  REQUIRE(pem.ok());
  return *pem;
}

Authority::Issued Issued(const Authority& authority, const Subject& subject,
                         absl::Duration lifetime = 30 * kDay) {
  const auto issued = authority.Issue(subject, kNow, lifetime);
  REQUIRE(issued.ok());
  return *issued;
}

Certificate Parsed(const std::string& pem) {
  Certificate certificate = ParseCertificate(pem);
  REQUIRE(certificate != nullptr);
  return certificate;
}

TEST_CASE("an authority is valid for ten years and may do nothing but sign certificates") {
  const Certificate certificate = Parsed(PemOf(Made()).certificate);
  CHECK(X509_check_ca(certificate.get()) == 1);
  CHECK(X509_get_pathlen(certificate.get()) == 0);
  CHECK(X509_get_key_usage(certificate.get()) == KU_KEY_CERT_SIGN);
  CHECK(X509_self_signed(certificate.get(), 1) == 1);
  CHECK(BeginOf(certificate.get()) == kNow - absl::Minutes(5));
  // 2037-01-15 08:00 UTC
  CHECK(EndOf(certificate.get()) == absl::FromUnixSeconds(2'115'619'200));
}

TEST_CASE("a certificate says whose it is, and is for clients and servers") {
  const Certificate certificate = Parsed(Issued(Made(), kShard).pem.certificate);
  X509* const x509 = certificate.get();
  CHECK(X509_check_ca(x509) == 0);
  CHECK(X509_get_key_usage(x509) == KU_DIGITAL_SIGNATURE);
  CHECK(X509_get_extended_key_usage(x509) == (XKU_SSL_CLIENT | XKU_SSL_SERVER));
  CHECK(X509_get0_subject_key_id(x509) != nullptr);
  CHECK(X509_get0_authority_key_id(x509) != nullptr);
  char name[64];
  X509_NAME_get_text_by_NID(X509_get_subject_name(x509), NID_commonName, name, sizeof(name));
  CHECK(name == kShard.name);
  CHECK(X509_check_ip_asc(x509, "10.0.0.1", 0) == 1);
  CHECK(X509_check_ip_asc(x509, "fd00::1", 0) == 1);
  CHECK(X509_check_host(x509, "ps0.example.org", 0, 0, nullptr) == 1);
  CHECK(X509_check_ip_asc(x509, "10.0.0.2", 0) == 0);
  CHECK(X509_check_host(x509, "ps1.example.org", 0, 0, nullptr) == 0);
}

TEST_CASE("no two certificates have a key or a serial number in common") {
  const Authority authority = Made();
  const Authority::Issued first = Issued(authority, kShard);
  const Authority::Issued second = Issued(authority, kShard);
  CHECK(first.pem.key != second.pem.key);
  const Certificate one = Parsed(first.pem.certificate);
  const Certificate other = Parsed(second.pem.certificate);
  const ASN1_INTEGER* const serial = X509_get0_serialNumber(one.get());
  CHECK(ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(other.get())) != 0);
  BIGNUM* const number = ASN1_INTEGER_to_BN(serial, nullptr);
  CHECK(BN_num_bits(number) > 96);  // of 128 random ones
  CHECK(BN_num_bits(number) <= 128);
  BN_free(number);
}

TEST_CASE("a certificate ends after its lifetime, but not after its authority") {
  const Authority authority = Made();
  CHECK(Issued(authority, kShard, kDay).ends == kNow + kDay);
  const Authority::Issued late = Issued(authority, kShard, 20 * 365 * kDay);
  CHECK(late.ends == authority.ends());
  const Certificate certificate = Parsed(late.pem.certificate);
  CHECK(BeginOf(certificate.get()) == kNow - absl::Minutes(5));
  CHECK(EndOf(certificate.get()) == authority.ends());
}

TEST_CASE("an authority that was made before signs as before") {
  const PemPair pem = PemOf(Made());
  const auto parsed = Authority::Parse(pem, kNow + 365 * kDay);
  REQUIRE(parsed.ok());
  CHECK(PemOf(*parsed).certificate == pem.certificate);
  const Certificate certificate = Parsed(Issued(*parsed, kShard).pem.certificate);
  const Certificate authority = Parsed(pem.certificate);
  CHECK(X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) == 1);
  CHECK(X509_check_issued(authority.get(), certificate.get()) == X509_V_OK);
}

std::string ProblemOf(const PemPair& pem, absl::Time now = kNow) {
  const auto parsed = Authority::Parse(pem, now);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().code() == absl::StatusCode::kFailedPrecondition);
  return std::string(parsed.status().message());
}

// The key in PEM, with the password "secret".
std::string WithPassword(const std::string& pem) {
  const Key key = ParseKey(pem);
  BIO* const buffer = BIO_new(BIO_s_mem());
  REQUIRE(PEM_write_bio_PKCS8PrivateKey(buffer, key.get(), EVP_aes_128_cbc(), "secret", 6, nullptr,
                                        nullptr) == 1);
  char* text;
  const int64_t bytes = BIO_get_mem_data(buffer, &text);
  std::string result(text, bytes);
  BIO_free(buffer);
  return result;
}

TEST_CASE("files that are no authority's are refused with the reason") {
  const Authority authority = Made();
  const PemPair pem = PemOf(authority);
  CHECK(ProblemOf({"", pem.key}) ==
        "authority.pem has no certificate, allowed: PEM, \"-----BEGIN CERTIFICATE-----\"");
  const std::string no_key =
      "authority.key has no key that can be read, allowed: PEM without a password";
  CHECK(ProblemOf({pem.certificate, pem.certificate}) == no_key);
  CHECK(ProblemOf({pem.certificate, WithPassword(pem.key)}) == no_key);
  CHECK(ProblemOf({pem.certificate, PemOf(Made()).key}) ==
        "authority.key is not the key of authority.pem, allowed: its own");
}

TEST_CASE("an authority that is not valid now is refused with the times") {
  const PemPair pem = PemOf(Made());
  CHECK(absl::StartsWith(ProblemOf(pem, kNow + 11 * 365 * kDay),
                         "authority.pem has expired on 2037-01-15 08:00 UTC, allowed: "));
  CHECK(ProblemOf(pem, kNow - kDay) ==
        "authority.pem is valid from 2027-01-15 07:55 UTC on, and this host has 2027-01-14 08:00 "
        "UTC, allowed: one that is valid now");
}

TEST_CASE("a certificate that may not sign others, or that others have signed, is no authority") {
  const Authority authority = Made();
  const PemPair pem = PemOf(authority);
  CHECK(absl::StartsWith(ProblemOf(Issued(authority, kShard).pem),
                         "authority.pem may not sign certificates, allowed: "));
  const Certificate root = Parsed(pem.certificate);
  const Key root_key = ParseKey(pem.key);
  const auto key = MakeKey();
  REQUIRE(key.ok());
  const CertificateContent content = {.name = "between",
                                      .begins = kNow,
                                      .ends = kNow + kDay,
                                      .extensions = {{NID_basic_constraints, "critical,CA:TRUE"}}};
  const auto between = MakeCertificate(content, key->get(), root.get(), root_key.get());
  REQUIRE(between.ok());
  const auto text = ToPem(between->get());
  const auto key_text = ToPem(key->get());
  REQUIRE((text.ok() && key_text.ok()));
  CHECK(absl::StartsWith(ProblemOf({*text, *key_text}),
                         "authority.pem is not signed by itself, allowed: "));
}

}  // namespace
}  // namespace evenshard
