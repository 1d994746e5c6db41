#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/config/config_validation.h"
#include "common/security/identity.h"

namespace evenshard {
namespace {

void ValidateFiles(const Security& security, FieldProblems* problems) {
  const std::vector<std::pair<const char*, const std::string*>> files = {
      {"security.certificate", &security.certificate()},
      {"security.key", &security.key()},
      {"security.authority", &security.authority()}};
  std::string missing;
  for (const auto& [field, path] : files) {
    if (path->empty() && missing.empty()) missing = field;
  }
  const bool has_any = security.has_certificate() || security.has_key() || security.has_authority();
  if (has_any && !missing.empty()) {
    problems->Add(missing,
                  "is missing, allowed: a file in PEM, with certificate, key and authority "
                  "together");
  }
  if (has_any && security.insecure()) {
    problems->Add("security.insecure",
                  "is true, and security.certificate is set, allowed: one of the two",
                  {"security.certificate", "security.key", "security.authority"});
  }
}

void ValidateNames(const Security& security, FieldProblems* problems) {
  problems->Require(IsRunName(security.run()), "security.run",
                    absl::StrCat("\"", absl::CEscape(security.run()), "\""), kAllowedRunNames);
  if (!security.has_name()) return;
  problems->Require(ProcessName::Parse(security.name()).has_value(), "security.name",
                    absl::StrCat("\"", absl::CEscape(security.name()), "\""), kAllowedProcessNames);
}

void ValidateEtcdFiles(const Recovery::Etcd& etcd, FieldProblems* problems) {
  const auto require = [&](bool is_wrong, const char* field, const char* problem) {
    if (is_wrong) problems->Add(field, problem);
  };
  require(etcd.has_certificate() != etcd.has_key(),
          etcd.has_key() ? "recovery.etcd.certificate" : "recovery.etcd.key",
          "is missing, allowed: a file in PEM, with certificate and key together");
  require(etcd.has_certificate() && !etcd.has_authority(), "recovery.etcd.authority",
          "is missing, allowed: a file in PEM, of the authority of etcd's own certificates");
  require(etcd.has_user() != etcd.has_password_file(),
          etcd.has_user() ? "recovery.etcd.password_file" : "recovery.etcd.user",
          "is missing, allowed: user and password_file together");
  require(
      etcd.has_user() && !etcd.has_authority(), "recovery.etcd.authority",
      "is missing, and the password of recovery.etcd.user would travel in plaintext, allowed: a "
      "file in PEM");
}

}  // namespace

void ValidateSecurity(const ClusterConfig& config, FieldProblems* problems) {
  if (config.has_security()) {
    ValidateFiles(config.security(), problems);
    ValidateNames(config.security(), problems);
  }
  if (config.recovery().has_etcd()) ValidateEtcdFiles(config.recovery().etcd(), problems);
}

}  // namespace evenshard
