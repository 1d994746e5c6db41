#include "tools/psctl/certificates/x509.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstddef>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace evenshard {
namespace {

constexpr int kSerialBits = 128;

using Number = std::unique_ptr<BIGNUM, FreeWith<&BN_free>>;
using Buffer = std::unique_ptr<BIO, FreeWith<&BIO_free_all>>;
using ExtensionPointer = std::unique_ptr<X509_EXTENSION, FreeWith<&X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, FreeWith<&GENERAL_NAMES_free>>;

// After a call of OpenSSL that fails only if there is no memory, or if this program is wrong.
absl::Status SslError(absl::string_view doing) {
  char why[256];
  ERR_error_string_n(ERR_get_error(), why, sizeof(why));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", doing, ": ", why));
}

bool SetSerial(X509* certificate) {
  const Number serial(BN_new());
  return BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetTimes(const CertificateContent& content, X509* certificate) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(content.begins)) &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(content.ends));
}

bool SetNames(const std::string& name, const X509* issuer, X509* certificate) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  return X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(name.data()),
                                    static_cast<int>(name.size()), -1, 0) == 1 &&
         X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1;
}

bool AddExtension(int nid, const char* value, X509* issuer, X509* certificate) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPointer extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// Adds a name of a type such as GEN_DNS, whose value is a string of bytes.
bool AddName(int type, absl::string_view bytes, GENERAL_NAMES* names) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  ASN1_STRING* const value =
      ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
  if (name == nullptr || value == nullptr ||
      ASN1_STRING_set(value, bytes.data(), static_cast<int>(bytes.size())) != 1) {
    ASN1_STRING_free(value);
    GENERAL_NAME_free(name);
    return false;
  }
  GENERAL_NAME_set0_value(name, type, value);
  if (sk_GENERAL_NAME_push(names, name) > 0) return true;
  GENERAL_NAME_free(name);
  return false;
}

bool AddHost(const std::string& host, GENERAL_NAMES* names) {
  unsigned char ip[sizeof(in6_addr)];
  size_t bytes = 0;
  if (inet_pton(AF_INET, host.c_str(), ip) == 1) bytes = sizeof(in_addr);
  if (inet_pton(AF_INET6, host.c_str(), ip) == 1) bytes = sizeof(in6_addr);
  if (bytes == 0) return AddName(GEN_DNS, host, names);
  return AddName(GEN_IPADD, absl::string_view(reinterpret_cast<const char*>(ip), bytes), names);
}

bool AddAlternativeNames(const CertificateContent& content, X509* certificate) {
  if (content.uri.empty()) return true;
  const Names names(GENERAL_NAMES_new());
  if (names == nullptr || !AddName(GEN_URI, content.uri, names.get())) return false;
  for (const std::string& host : content.hosts) {
    if (!AddHost(host, names.get())) return false;
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), /*crit=*/0,
                           X509V3_ADD_DEFAULT) == 1;
}

Buffer BufferOf(const std::string& text) {
  return Buffer(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TextOf(BIO* buffer) {
  char* text = nullptr;
  const int64_t bytes = BIO_get_mem_data(buffer, &text);
  return std::string(text, bytes);
}

}  // namespace

absl::StatusOr<Key> MakeKey() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return SslError("make a key");
  return key;
}

absl::StatusOr<Certificate> MakeCertificate(const CertificateContent& content, EVP_PKEY* key,
                                            X509* issuer, EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  if (certificate == nullptr) return SslError("make a certificate");
  if (issuer == nullptr) issuer = certificate.get();
  bool made = X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
              SetSerial(certificate.get()) && SetTimes(content, certificate.get()) &&
              SetNames(content.name, issuer, certificate.get()) &&
              X509_set_pubkey(certificate.get(), key) == 1;
  for (const auto& [nid, value] : content.extensions) {
    made = made && AddExtension(nid, value, issuer, certificate.get());
  }
  made = made && AddAlternativeNames(content, certificate.get()) &&
         X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0;
  if (!made) return SslError(absl::StrCat("make the certificate of ", content.name));
  return certificate;
}

Certificate ParseCertificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(BufferOf(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Key ParseKey(const std::string& pem) {
  // OpenSSL would ask at the terminal for the password of a key that has one.
  constexpr auto no_password = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(BufferOf(pem).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return key;
}

absl::StatusOr<std::string> ToPem(const X509* certificate) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  if (buffer == nullptr || PEM_write_bio_X509(buffer.get(), certificate) != 1) {
    return SslError("write a certificate");
  }
  return TextOf(buffer.get());
}

absl::StatusOr<std::string> ToPem(const EVP_PKEY* key) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  if (buffer == nullptr || PEM_write_bio_PKCS8PrivateKey(buffer.get(), key, nullptr, nullptr, 0,
                                                         nullptr, nullptr) != 1) {
    return SslError("write a key");
  }
  return TextOf(buffer.get());
}

}  // namespace evenshard
