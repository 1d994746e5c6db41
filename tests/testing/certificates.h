#ifndef EVENSHARD_TESTS_TESTING_CERTIFICATES_H_
#define EVENSHARD_TESTS_TESTING_CERTIFICATES_H_

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/config.pb.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

// Makes an authority and what it signs, as PEM files in a folder: right ones, and wrong in one way.
class TestAuthority {
 public:
  struct Certificate {
    std::vector<std::string> names =
        {};               // "URI:evenshard://run/operator", "DNS:host", "IP:10.0.0.1"
    long begins = -3600;  // seconds from now
    long ends = 3600;
  };

  // Writes NAME.pem.
  TestAuthority(const ScratchFolder& folder, const std::string& name, long ends = 3600)
      : folder_(folder), key_(MakeKey()), path_(folder.Path(name + ".pem")) {
    certificate_.reset(Make(key_.get(), name, {.begins = -7200, .ends = ends}, nullptr));
    Write(path_, [this](FILE* file) { PEM_write_X509(file, certificate_.get()); });
  }

  const std::string& path() const { return path_; }

  // Writes NAME.pem and NAME.key.
  void Issue(const std::string& name, const Certificate& wanted) const {
    const Key key = MakeKey();
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        Make(key.get(), name, wanted, certificate_.get()), X509_free);
    Write(folder_.Path(name + ".pem"),
          [&](FILE* file) { PEM_write_X509(file, certificate.get()); });
    Write(folder_.Path(name + ".key"), [&](FILE* file) {
      PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    REQUIRE(chmod(folder_.Path(name + ".key").c_str(), 0600) == 0);
  }

  // The `security` of a process with the files of NAME, in run "run".
  Security SecurityOf(const std::string& name) const {
    Security security;
    security.set_certificate(folder_.Path(name + ".pem"));
    security.set_key(folder_.Path(name + ".key"));
    security.set_authority(path_);
    security.set_run("run");
    return security;
  }

  // The same as an override: "security={...}".
  std::string Override(const std::string& name) const {
    return absl::StrCat("security={certificate: '", folder_.Path(name + ".pem"), "' key: '",
                        folder_.Path(name + ".key"), "' authority: '", path_, "' run: 'run'}");
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

  static Key MakeKey() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

  template <typename Print>
  static void Write(const std::string& path, const Print& print) {
    FILE* const file = std::fopen(path.c_str(), "wb");
    REQUIRE(file != nullptr);
    print(file);
    REQUIRE(std::fclose(file) == 0);
  }

  static void AddExtension(X509* certificate, X509* signer, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, signer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    REQUIRE(extension != nullptr);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }

  // Without a signer, an authority's own.
  X509* Make(EVP_PKEY* key, const std::string& name, const Certificate& wanted,
             X509* signer) const {
    X509* const made = X509_new();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made), wanted.begins);
    X509_gmtime_adj(X509_getm_notAfter(made), wanted.ends);
    X509_set_pubkey(made, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(made, X509_get_subject_name(signer == nullptr ? made : signer));
    if (signer == nullptr) AddExtension(made, made, NID_basic_constraints, "critical,CA:TRUE");
    if (!wanted.names.empty()) {
      AddExtension(made, signer == nullptr ? made : signer, NID_subject_alt_name,
                   absl::StrJoin(wanted.names, ","));
    }
    REQUIRE(X509_sign(made, key_.get(), EVP_sha256()) > 0);
    return made;
  }

  const ScratchFolder& folder_;
  const Key key_;
  const std::string path_;
  mutable int serial_ = 0;
  std::unique_ptr<X509, decltype(&X509_free)> certificate_{nullptr, X509_free};
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_CERTIFICATES_H_
