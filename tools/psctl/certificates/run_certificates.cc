#include "tools/psctl/certificates/run_certificates.h"

#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "tools/psctl/certificates/certificate_folder.h"
#include "tools/psctl/certificates/subjects.h"

namespace evenshard {
namespace {

std::string Day(absl::Time time) { return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone()); }

std::string TableOf(const RunCertificates& certificates) {
  Table table({"name", "certificate", "hosts", "ends"});
  const std::string folder = Printable(certificates.folder);
  table.AddRow({"authority", absl::StrCat(folder, "/", kAuthorityCertificateFile), "",
                Day(certificates.authority_ends)});
  for (const auto& [subject, ends] : certificates.processes) {
    table.AddRow({subject.name, absl::StrCat(folder, "/", subject.name, ".pem"),
                  absl::StrJoin(subject.hosts, ", "), Day(ends)});
  }
  return table.ToString();
}

// The folder as the config names it, in which paths are relative to the config.
std::string FolderInConfig(const std::string& folder, const std::string& config_path) {
  const std::filesystem::path path = folder;
  if (path.is_absolute()) return folder;
  const std::filesystem::path from = std::filesystem::absolute(config_path).parent_path();
  return std::filesystem::absolute(path).lexically_normal().lexically_proximate(
      from.lexically_normal());
}

std::string SectionOf(const Security& security, const std::string& folder) {
  const std::string escaped = absl::CEscape(folder);
  return absl::StrCat(
      "security {\n",
      security.has_run() ? absl::StrCat("  run: \"", absl::CEscape(security.run()), "\"\n") : "",
      "  certificate: \"", escaped, "/{name}.pem\"\n", "  key: \"", escaped, "/{name}.key\"\n",
      "  authority: \"", escaped, "/", kAuthorityCertificateFile, "\"\n", "}\n");
}

}  // namespace

absl::StatusOr<RunCertificates> WriteRunCertificates(const Config& config,
                                                     const std::string& folder, absl::Time now,
                                                     absl::Duration lifetime) {
  ASSIGN_OR_RETURN(const CertificateFolder files, CertificateFolder::Open(folder));
  ASSIGN_OR_RETURN(const CertificateFolder::OpenedAuthority opened, files.OpenAuthority(now));
  RunCertificates written = {.folder = folder,
                             .authority_is_new = opened.is_new,
                             .authority_ends = opened.authority.ends(),
                             .processes = {}};
  for (Subject& subject : SubjectsOf(config)) {
    ASSIGN_OR_RETURN(const Authority::Issued issued,
                     opened.authority.Issue(subject, now, lifetime));
    RETURN_IF_ERROR(files.Write(subject.name, issued.pem));
    written.processes.push_back({.subject = std::move(subject), .ends = issued.ends});
  }
  return written;
}

std::string RunCertificatesText(const RunCertificates& certificates, const Config& config,
                                const std::string& config_path) {
  const std::string folder = FolderInConfig(certificates.folder, config_path);
  return absl::StrCat(
      TableOf(certificates), "\n",
      certificates.authority_is_new ? "The authority is new." : "The authority was there.",
      " Keys are beside the certificates, as NAME.key.\n\nFor the config:\n\n",
      SectionOf(config.proto().security(), folder), "\nEach host needs ", kAuthorityCertificateFile,
      ", and NAME.pem and NAME.key of each process that runs there (psctl is operator); ",
      kAuthorityKeyFile, " stays where it is.\n");
}

}  // namespace evenshard
