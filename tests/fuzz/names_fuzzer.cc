// libFuzzer target: names: those in certificates, of processes and of runs, addresses, names of
// checkpoints, and text that is printed. What is taken is written in one way only, and what a
// certificate gives does not depend on the order of its names.
//
// The input is names, one a line.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/address.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/security/identity.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

constexpr char kRun[] = "run";

void CheckName(const std::string& name) {
  if (const auto process = ProcessName::Parse(name); process.has_value()) {
    const auto again = ProcessName::Parse(process->ToString());
    Require(again.has_value() && again->role == process->role && again->index == process->index,
            "the name of a process");
    const auto identity = Identity::Of({UriOf(kRun, *process)}, kRun);
    Require(identity.ok() && identity->MayBe(*process), "who has a name may be its process");
  }
  if (const auto id = ParseCheckpointId(name); id.has_value()) {
    Require(id->ToString() == name && name.find('/') == std::string::npos,
            "the name of a checkpoint");
  }
  if (const auto address = ParseAddress(name); address.has_value()) {
    Require(!address->canonical.empty() && (address->host.empty() == name.starts_with("unix:")),
            "an address");
  }
  if (IsRunName(name)) Require(name.find('/') == std::string::npos, "the name of a run");
  for (const char c : Printable(name)) {
    Require(static_cast<unsigned char>(c) >= ' ' && c != '\x7f', "printable text");
  }
}

void CheckCertificate(std::vector<std::string> names) {
  const auto identity = Identity::Of(names, kRun);
  std::reverse(names.begin(), names.end());
  const auto reversed = Identity::Of(names, kRun);
  Require(identity.ok() == reversed.ok(), "the order of names");
  if (!identity.ok()) return;
  for (const Role role : kRoles) {
    Require(identity->Has(role) == reversed->Has(role), "the order of names");
    for (const int index : {0, 1, 7, 999999}) {
      const ProcessName process = {.role = role, .index = index};
      Require(identity->MayBe(process) == reversed->MayBe(process), "the order of names");
      Require(identity->Has(role) || !identity->MayBe(process), "a process of no role");
    }
  }
  const auto elsewhere = Identity::Of(names, "another");
  for (const std::string& name : names) {
    if (name.starts_with("evenshard://another/")) return;
  }
  for (const Role role : kRoles) {
    Require(elsewhere.ok() && !elsewhere->Has(role), "a right in another run");
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  const std::vector<std::string> names = absl::StrSplit(std::string(input, input + size), '\n');
  for (const std::string& name : names) evenshard::CheckName(name);
  evenshard::CheckCertificate(names);
  return 0;
}
