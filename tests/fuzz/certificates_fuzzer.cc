// libFuzzer target: the files of `security`: certificates, keys and authorities in PEM, and the
// names in a certificate that the authority has signed. A process takes only those by which it may
// be who it is.
//
// The first byte of the input says what the rest is.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/security/tls_files.h"
#include "tests/fuzz/fuzzing.h"
#include "tools/psctl/certificates/authority.h"

namespace evenshard {
namespace {

constexpr char kName[] = "worker-1";
constexpr char kBegin[] = "-----BEGIN CERTIFICATE-----\n";
constexpr char kEnd[] = "-----END CERTIFICATE-----\n";

// What is made once, and is as it should be.
struct Good {
  Good()
      : now(absl::Now()),
        authority(Authority::Make(now).value()),
        authority_pem(authority.ToPem()->certificate),
        own(Issue("evenshard://run/worker/0-3").value().pem) {}

  absl::StatusOr<Authority::Issued> Issue(const std::string& uri) const {
    return authority.Issue({.name = kName, .uri = uri, .hosts = {}}, now, absl::Hours(1));
  }

  const absl::Time now;
  const Authority authority;
  const std::string authority_pem;
  const PemPair own;
};

// A file in memory.
class File {
 public:
  explicit File(absl::string_view contents) : file_(memfd_create("fuzzed", MFD_CLOEXEC)) {
    Require(
        file_ >= 0 && fchmod(file_, S_IRUSR | S_IWUSR) == 0 &&
            write(file_, contents.data(), contents.size()) == static_cast<ssize_t>(contents.size()),
        "a file is written");
  }
  ~File() { close(file_); }
  std::string path() const { return absl::StrCat("/proc/self/fd/", file_); }

 private:
  const int file_;
};

// The certificate with bytes changed: the input is pairs of a place and a byte.
std::string Changed(const std::string& pem, absl::string_view input) {
  std::string der;
  const std::string base64 = absl::StrReplaceAll(pem, {{kBegin, ""}, {kEnd, ""}, {"\n", ""}});
  Require(absl::Base64Unescape(base64, &der), "a certificate in PEM");
  for (size_t i = 0; i + 2 < input.size(); i += 3) {
    const size_t place = static_cast<uint8_t>(input[i]) << 8 | static_cast<uint8_t>(input[i + 1]);
    der[place % der.size()] = input[i + 2];
  }
  return absl::StrCat(kBegin, absl::Base64Escape(der), "\n", kEnd);
}

void Check(uint8_t what, absl::string_view input) {
  static const auto* const good = new Good;
  std::string certificate = good->own.certificate, key = good->own.key,
              authority = good->authority_pem;
  switch (what % 6) {
    case 0:
      certificate = std::string(input);
      break;
    case 1:
      key = std::string(input);
      break;
    case 2:
      authority = std::string(input);
      break;
    case 3:
      certificate = Changed(certificate, input);
      break;
    case 4:
      authority = Changed(authority, input);
      break;
    default: {
      const auto issued = good->Issue(std::string(input));
      if (!issued.ok()) return;
      certificate = issued->pem.certificate;
      key = issued->pem.key;
    }
  }
  const File certificate_file(certificate), key_file(key), authority_file(authority);
  Security security;
  security.set_certificate(certificate_file.path());
  security.set_key(key_file.path());
  security.set_authority(authority_file.path());
  security.set_run("run");
  security.set_name(kName);
  const absl::StatusOr<TlsIdentity> read = ReadTlsFiles(security, good->now);
  if (read.ok()) {
    Require(read->identity.MayBe({.role = Role::kWorker, .index = 1}), "its own name");
    Require(what % 6 != 5 || absl::StartsWith(input, "evenshard://run/worker/"), "a worker's name");
  } else {
    Require(!read.status().message().empty(), "a refusal says why");
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size == 0) return 0;
  evenshard::Check(input[0], {reinterpret_cast<const char*>(input + 1), size - 1});
  return 0;
}
