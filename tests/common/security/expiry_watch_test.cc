#include "common/security/expiry_watch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/security/credentials.h"
#include "tests/testing/await.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

Security EndsSoon(const ScratchFolder& folder) {
  const TestAuthority authority(folder, "authority");
  authority.Issue("soon", {.names = {"URI:evenshard://run/worker/0"}, .ends = 6 * 24 * 3600});
  Security security = authority.SecurityOf("soon");
  security.set_name("worker-0");
  return security;
}

size_t Lines(const CapturedLog& log) {
  const std::string text = log.text();
  return std::vector<std::string>(absl::StrSplit(text, " expires on ")).size() - 1;
}

TEST_CASE("a certificate that ends soon is told at once, and again and again") {
  const ScratchFolder folder;
  const Security security = EndsSoon(folder);
  const CapturedLog log;
  { const ExpiryWatch once(security, absl::Hours(1)); }
  CHECK(Lines(log) == 1);
  const ExpiryWatch often(security, absl::Milliseconds(10));
  AwaitTrue([&] { return Lines(log) >= 4; });
}

TEST_CASE("every process that connects or listens tells it, once for all connections") {
  const ScratchFolder folder;
  const Security security = EndsSoon(folder);
  const CapturedLog log;
  for (int i = 0; i < 3; ++i) {
    CHECK(ChannelCredentialsFor("127.0.0.1:1", security, {.role = Role::kShard}) != nullptr);
    CHECK(ServerCredentialsFor("127.0.0.1:1", security).ok());
  }
  CHECK_THAT(log.text(), Contains("soon.pem\") expires on 20"));
  CHECK(Lines(log) == 1);
}

}  // namespace
}  // namespace evenshard
