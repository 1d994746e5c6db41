#include "common/security/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/status_macros.h"
#include "common/security/openssl.h"
#include "common/security/pem_checks.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

using File = std::unique_ptr<FILE, FreeWith<&std::fclose>>;
using Store = std::unique_ptr<X509_STORE, FreeWith<&X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, FreeWith<&X509_STORE_CTX_free>>;

// One of the three files, in errors: `security.key ("keys/worker-1.key")`.
class PemFile {
 public:
  static absl::StatusOr<PemFile> Open(absl::string_view field, const std::string& path) {
    PemFile file(field, path);
    file.file_.reset(std::fopen(path.c_str(), "rb"));
    if (file.file_ != nullptr) return file;
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", file.name_));
  }

  absl::Status Wrong(absl::string_view what) const {
    return absl::FailedPreconditionError(absl::StrCat(name_, " ", what));
  }
  const std::string& name() const { return name_; }
  FILE* get() const { return file_.get(); }

 private:
  PemFile(absl::string_view field, const std::string& path)
      : name_(absl::StrCat("security.", field, " (\"", path, "\")")) {}

  std::string name_;
  File file_;
};

// All certificates of a file, of which there is one at least.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(const PemFile& file) {
  std::vector<Certificate> certificates;
  while (Certificate next{PEM_read_X509(file.get(), nullptr, nullptr, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  ERR_clear_error();  // the end of the file is one
  if (certificates.empty()) return HasNoCertificate(file.name());
  return certificates;
}

absl::StatusOr<Key> ReadKey(const PemFile& file) {
  RETURN_IF_ERROR(CheckMode(file.name(), file.get(), KeyReaders::kGroup));
  // A password that nobody asks for: a process has no terminal to type it at.
  constexpr auto no_password = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_PrivateKey(file.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key == nullptr) return HasNoKey(file.name());
  return key;
}

// Whether one of the authority's certificates has signed the first of `chain`, with the others of
// it in between. The times are checked by the caller, whose sentences say more.
absl::Status CheckSigned(const PemFile& file, const std::vector<Certificate>& chain,
                         const std::vector<Certificate>& authorities) {
  const Store store(X509_STORE_new());
  for (const Certificate& authority : authorities)
    X509_STORE_add_cert(store.get(), authority.get());
  STACK_OF(X509)* const between = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between, chain[i].get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between);
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(context.get()), X509_V_FLAG_NO_CHECK_TIME);
  const bool is_signed = X509_verify_cert(context.get()) == 1;
  const std::string why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  sk_X509_free(between);
  ERR_clear_error();
  if (is_signed) return absl::OkStatus();
  return file.Wrong(absl::StrCat("is not signed by security.authority (", why,
                                 "), allowed: a certificate of the run's own authority"));
}

std::vector<std::string> UrisOf(const X509* certificate) {
  std::vector<std::string> uris;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      ASN1_STRING_length(uri));
  }
  GENERAL_NAMES_free(names);
  return uris;
}

absl::StatusOr<Identity> IdentityOf(const PemFile& file, const X509* certificate,
                                    const Security& security) {
  const absl::StatusOr<Identity> identity = Identity::Of(UrisOf(certificate), security.run());
  if (!identity.ok())
    return file.Wrong(absl::StrCat("cannot be used: ", identity.status().message()));
  const std::optional<ProcessName> self = ProcessName::Parse(security.name());
  if (!self.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("security.name is \"", security.name(),
                                                      "\", allowed: ", kAllowedProcessNames));
  }
  if (identity->MayBe(*self)) return *identity;
  return file.Wrong(absl::StrCat("is of ", identity->ToString(), " in run ", security.run(),
                                 ", and this is ", security.name(), ", allowed: one with the name ",
                                 UriOf(security.run(), *self)));
}

absl::Status CheckEtcdFiles(const Recovery::Etcd& etcd) {
  for (const auto& [field, path, is_secret] :
       {std::tuple("authority", &etcd.authority(), false),
        std::tuple("certificate", &etcd.certificate(), false), std::tuple("key", &etcd.key(), true),
        std::tuple("password_file", &etcd.password_file(), true)}) {
    if (path->empty()) continue;
    const std::string name = absl::StrCat("recovery.etcd.", field, " (\"", *path, "\")");
    const File file(std::fopen(path->c_str(), "rb"));
    if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", name));
    if (is_secret) RETURN_IF_ERROR(CheckMode(name, file.get(), KeyReaders::kGroup));
  }
  return absl::OkStatus();
}

// The fields and addresses of what is reached without TLS.
std::vector<AddressField> PlaintextAddresses(const ClusterConfig& config) {
  std::vector<AddressField> addresses;
  if (config.security().certificate().empty()) addresses = ListenAddresses(config);
  const Recovery::Etcd& etcd = config.recovery().etcd();
  for (int i = 0; i < etcd.endpoint_size() && !etcd.has_authority(); ++i) {
    addresses.push_back(
        {absl::StrCat("recovery.etcd.endpoint[", i, "]"), etcd.endpoint(i), "etcd"});
  }
  return addresses;
}

}  // namespace

absl::StatusOr<TlsIdentity> ReadTlsFiles(const Security& security, absl::Time now) {
  ASSIGN_OR_RETURN(const PemFile certificate_file,
                   PemFile::Open("certificate", security.certificate()));
  ASSIGN_OR_RETURN(const PemFile key_file, PemFile::Open("key", security.key()));
  ASSIGN_OR_RETURN(const PemFile authority_file, PemFile::Open("authority", security.authority()));
  ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ReadCertificates(certificate_file));
  ASSIGN_OR_RETURN(const Key key, ReadKey(key_file));
  ASSIGN_OR_RETURN(const std::vector<Certificate> authorities, ReadCertificates(authority_file));
  const X509* const certificate = chain[0].get();
  RETURN_IF_ERROR(CheckIsKeyOf(key_file.name(), key.get(), certificate, "security.certificate"));
  for (const Certificate& authority : authorities) {
    RETURN_IF_ERROR(CheckTimes(authority_file.name(), authority.get(), now));
  }
  RETURN_IF_ERROR(CheckTimes(certificate_file.name(), certificate, now));
  RETURN_IF_ERROR(CheckSigned(certificate_file, chain, authorities));
  ASSIGN_OR_RETURN(Identity identity, IdentityOf(certificate_file, certificate, security));
  return TlsIdentity{.identity = std::move(identity), .ends = EndOf(certificate)};
}

absl::Status CheckSecurity(const ClusterConfig& config) {
  const Security& security = config.security();
  if (!security.certificate().empty()) {
    RETURN_IF_ERROR(ReadTlsFiles(security, absl::Now()).status());
  }
  RETURN_IF_ERROR(CheckEtcdFiles(config.recovery().etcd()));
  for (const auto& [field, address, each] : PlaintextAddresses(config)) {
    if (AllowsPlaintext(security, address)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        field, " is \"", address, "\", which is of other hosts, and ",
        absl::StartsWith(field, "recovery.etcd")
            ? "the way there is in plaintext, allowed: recovery.etcd.authority, for TLS"
            : "nothing says who may do what, allowed: security { certificate key authority } "
              "(psctl certificates makes them)",
        ", or, in a network that nobody else can reach, security { insecure: true }"));
  }
  return absl::OkStatus();
}

absl::Status CheckAndLogSecurity(const ClusterConfig& config) {
  RETURN_IF_ERROR(CheckSecurity(config));
  if (config.security().insecure()) {
    spdlog::warn(
        "security.insecure: nothing is encrypted, and whoever reaches a port may do everything");
  }
  return absl::OkStatus();
}

void LogExpiry(const Security& security) {
  if (security.certificate().empty()) return;
  const absl::StatusOr<TlsIdentity> files = ReadTlsFiles(security, absl::Now());
  if (!files.ok()) return spdlog::error("{}", std::string(files.status().message()));
  if (files->ends - absl::Now() >= kExpiryNotice) return;
  spdlog::warn(
      "security.certificate (\"{}\") expires on {}: put another one in its place, which is taken "
      "up without a restart",
      security.certificate(), FormatMinute(files->ends));
}

std::string NameOverride(ProcessName self) {
  if (self.role == Role::kWorker || self.role == Role::kShard) self.index = std::max(self.index, 0);
  return absl::StrCat("security.name=", self.ToString());
}

bool AllowsPlaintext(const Security& security, absl::string_view address) {
  const std::optional<Address> parsed = ParseAddress(address);
  return security.insecure() || (parsed.has_value() && parsed->is_of_host);
}

}  // namespace evenshard
