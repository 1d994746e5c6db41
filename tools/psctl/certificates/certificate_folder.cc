#include "tools/psctl/certificates/certificate_folder.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/security/pem_checks.h"

namespace evenshard {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kKeyMode = 0600;
constexpr mode_t kCertificateMode = 0644;
// Larger files are none of this program's.
constexpr size_t kMaxFileBytes = 1 << 20;

using File = std::unique_ptr<FILE, FreeWith<&std::fclose>>;

absl::Status SystemError(absl::string_view doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", doing, " ", Printable(path)));
}

// Returns a file of `text` that is not at its path yet.
absl::StatusOr<std::unique_ptr<AtomicFile>> Written(const std::string& path,
                                                    const std::string& text, mode_t mode) {
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(path, static_cast<int64_t>(text.size()), mode));
  RETURN_IF_ERROR(file->WriteAt(0, text));
  return file;
}

// What can fail does so before one of the two is there: neither is of use without the other.
absl::Status WritePair(const std::string& key_path, const std::string& certificate_path,
                       const PemPair& pem) {
  ASSIGN_OR_RETURN(const auto key, Written(key_path, pem.key, kKeyMode));
  ASSIGN_OR_RETURN(const auto certificate,
                   Written(certificate_path, pem.certificate, kCertificateMode));
  RETURN_IF_ERROR(key->Commit());
  return certificate->Commit();
}

// Reads a file, which others may not be able to read if it is secret.
absl::StatusOr<std::string> ReadFile(const std::string& path, bool is_secret) {
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return SystemError("read", path);
  if (is_secret) {
    RETURN_IF_ERROR(CheckMode(Printable(path), file.get(), KeyReaders::kNobody));
  }
  std::string text(kMaxFileBytes, 0);
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return std::ferror(file.get()) == 0 ? absl::StatusOr<std::string>(std::move(text))
                                      : SystemError("read", path);
}

// Whoever can write in the folder can put another authority there.
absl::Status CheckOwnersOnly(int folder, const std::string& path) {
  struct stat status;
  if (fstat(folder, &status) != 0) return SystemError("read", path);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("--out: \"%s\" has mode %o, so that others can write in it, allowed: a "
                      "folder in which only its owner can write (chmod 700), or none yet",
                      Printable(path), status.st_mode & 0777));
}

}  // namespace

CertificateFolder::CertificateFolder(std::string path, Folder locked)
    : path_(std::move(path)), locked_(std::move(locked)) {}

absl::StatusOr<CertificateFolder> CertificateFolder::Open(const std::string& path) {
  if (mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return SystemError("make the folder", path);
  }
  Folder folder(opendir(path.c_str()));
  if (folder == nullptr && errno == ENOTDIR) {
    return absl::FailedPreconditionError(
        absl::StrCat("--out: \"", Printable(path), "\" is a file, allowed: a folder, or none yet"));
  }
  if (folder == nullptr) return SystemError("open the folder", path);
  RETURN_IF_ERROR(CheckOwnersOnly(dirfd(folder.get()), path));
  if (flock(dirfd(folder.get()), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SystemError("lock (flock) the folder", path);
    return absl::AbortedError(absl::StrCat("--out: another psctl certificates works in \"",
                                           Printable(path), "\", allowed: one at a time"));
  }
  return CertificateFolder(path, std::move(folder));
}

absl::StatusOr<CertificateFolder::OpenedAuthority> CertificateFolder::OpenAuthority(
    absl::Time now) const {
  const std::string certificate = absl::StrCat(path_, "/", kAuthorityCertificateFile);
  const std::string key = absl::StrCat(path_, "/", kAuthorityKeyFile);
  const bool has_certificate = access(certificate.c_str(), F_OK) == 0;
  const bool has_key = access(key.c_str(), F_OK) == 0;
  if (has_certificate != has_key) {
    return absl::FailedPreconditionError(absl::StrCat(
        Printable(has_key ? key : certificate), " is there without ",
        has_key ? kAuthorityCertificateFile : kAuthorityKeyFile,
        ", allowed: both, with which new certificates are signed, or none, so that a new authority "
        "is made"));
  }
  absl::StatusOr<Authority> authority = has_key ? ReadAuthority(now) : MakeAuthority(now);
  if (!authority.ok()) return authority.status();
  return OpenedAuthority{.authority = *std::move(authority), .is_new = !has_key};
}

absl::StatusOr<Authority> CertificateFolder::MakeAuthority(absl::Time now) const {
  ASSIGN_OR_RETURN(Authority authority, Authority::Make(now));
  ASSIGN_OR_RETURN(const PemPair pem, authority.ToPem());
  RETURN_IF_ERROR(WritePair(absl::StrCat(path_, "/", kAuthorityKeyFile),
                            absl::StrCat(path_, "/", kAuthorityCertificateFile), pem));
  return authority;
}

absl::StatusOr<Authority> CertificateFolder::ReadAuthority(absl::Time now) const {
  PemPair pem;
  ASSIGN_OR_RETURN(pem.key, ReadFile(absl::StrCat(path_, "/", kAuthorityKeyFile),
                                     /*is_secret=*/true));
  ASSIGN_OR_RETURN(pem.certificate, ReadFile(absl::StrCat(path_, "/", kAuthorityCertificateFile),
                                             /*is_secret=*/false));
  absl::StatusOr<Authority> authority = Authority::Parse(pem, now);
  if (authority.ok()) return authority;
  return absl::Status(authority.status().code(),
                      absl::StrCat(Printable(path_), "/", authority.status().message()));
}

absl::Status CertificateFolder::Write(const std::string& name, const PemPair& pem) const {
  const std::string stem = absl::StrCat(path_, "/", name);
  return WritePair(absl::StrCat(stem, ".key"), absl::StrCat(stem, ".pem"), pem);
}

}  // namespace evenshard
