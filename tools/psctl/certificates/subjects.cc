#include "tools/psctl/certificates/subjects.h"

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/address.h"
#include "common/security/identity.h"

namespace evenshard {
namespace {

std::vector<std::string> HostsOf(absl::string_view address) {
  const std::optional<Address> parsed = ParseAddress(address);
  if (!parsed.has_value() || parsed->host.empty()) return {};
  if (parsed->host == "0.0.0.0" || parsed->host == "::") return {};
  return {parsed->host};
}

}  // namespace

std::vector<Subject> SubjectsOf(const Config& config) {
  std::vector<Subject> subjects;
  const auto add = [&](const ProcessName& process, absl::string_view address) {
    subjects.push_back({.name = process.ToString(),
                        .uri = UriOf(config.proto().security().run(), process),
                        .hosts = HostsOf(address)});
  };
  for (int i = 0; i < config.processes(); ++i) {
    add({.role = Role::kShard, .index = i}, config.process_address(i));
  }
  for (int i = 0; i < config.workers(); ++i) {
    add({.role = Role::kWorker, .index = i},
        config.is_ring() ? absl::string_view(config.proto().ring().address(i)) : "");
  }
  add({.role = Role::kOperator}, "");
  add({.role = Role::kReader}, "");
  return subjects;
}

}  // namespace evenshard
