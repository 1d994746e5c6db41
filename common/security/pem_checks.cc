#include "common/security/pem_checks.h"

#include <openssl/err.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/security/openssl.h"

namespace evenshard {
namespace {

absl::Status Wrong(absl::string_view file, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(file, " ", what));
}

}  // namespace

absl::Status HasNoCertificate(absl::string_view file) {
  return Wrong(file, "has no certificate, allowed: PEM, \"-----BEGIN CERTIFICATE-----\"");
}

absl::Status HasNoKey(absl::string_view file) {
  return Wrong(file, "has no key that can be read, allowed: PEM without a password");
}

absl::Status CheckMode(absl::string_view file, FILE* key, KeyReaders readers) {
  struct stat status;
  if (fstat(fileno(key), &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", file));
  }
  const bool may_group = readers == KeyReaders::kGroup;
  const mode_t others = S_IROTH | S_IWOTH | S_IWGRP | (may_group ? 0 : S_IRGRP);
  if ((status.st_mode & others) == 0) return absl::OkStatus();
  return Wrong(file, absl::StrFormat("has mode %o, so that others can read or change it, allowed: "
                                     "%s (chmod 600)",
                                     status.st_mode & 0777, may_group ? "600 or 640" : "600"));
}

absl::Status CheckIsKeyOf(absl::string_view file, EVP_PKEY* key, const X509* certificate,
                          absl::string_view certificate_file) {
  const bool fits = X509_check_private_key(certificate, key) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return Wrong(file, absl::StrCat("is not the key of ", certificate_file, ", allowed: its own"));
}

absl::Status CheckTimes(absl::string_view file, const X509* certificate, absl::Time now,
                        absl::string_view renewal) {
  if (now < BeginOf(certificate)) {
    return Wrong(file, absl::StrCat("is valid from ", FormatMinute(BeginOf(certificate)),
                                    " on, and this host has ", FormatMinute(now),
                                    ", allowed: one that is valid now"));
  }
  if (now > EndOf(certificate)) {
    return Wrong(file, absl::StrCat("has expired on ", FormatMinute(EndOf(certificate)),
                                    ", allowed: one that is valid now", renewal));
  }
  return absl::OkStatus();
}

std::string FormatMinute(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

}  // namespace evenshard
