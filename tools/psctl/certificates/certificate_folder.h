#ifndef EVENSHARD_TOOLS_PSCTL_CERTIFICATES_CERTIFICATE_FOLDER_H_
#define EVENSHARD_TOOLS_PSCTL_CERTIFICATES_CERTIFICATE_FOLDER_H_

#include <dirent.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/psctl/certificates/authority.h"
#include "tools/psctl/certificates/x509.h"

namespace evenshard {

// A folder with the certificates and keys of a run: authority.pem and authority.key, and NAME.pem
// and NAME.key of each process. Keys have mode 600, certificates 644. Each file appears whole or
// not at all.
class CertificateFolder {
 public:
  // Makes the folder, with mode 700, if it is not there. Nobody else can open it until this object
  // is gone. Errors: FAILED_PRECONDITION if it is a file, or if others can write in it; ABORTED if
  // somebody else has it open; those of the system.
  static absl::StatusOr<CertificateFolder> Open(const std::string& path);

  struct OpenedAuthority {
    Authority authority;
    bool is_new;
  };
  // Reads the authority, or makes one if there is none. Errors, with the file: those of
  // Authority::Parse; FAILED_PRECONDITION if one of the two files is missing, or if others can read
  // the key; those of the system.
  absl::StatusOr<OpenedAuthority> OpenAuthority(absl::Time now) const;

  // Replaces the files of a process.
  absl::Status Write(const std::string& name, const PemPair& pem) const;

 private:
  using Folder = std::unique_ptr<DIR, FreeWith<&closedir>>;
  CertificateFolder(std::string path, Folder locked);

  absl::StatusOr<Authority> MakeAuthority(absl::Time now) const;
  absl::StatusOr<Authority> ReadAuthority(absl::Time now) const;

  std::string path_;
  Folder locked_;  // by flock(2)
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_CERTIFICATES_CERTIFICATE_FOLDER_H_
