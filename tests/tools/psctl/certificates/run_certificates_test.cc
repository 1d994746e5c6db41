#include "tools/psctl/certificates/run_certificates.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/security/identity.h"
#include "common/security/tls_files.h"
#include "proto/config.pb.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);

Config ConfigWith(const std::string& security) {
  auto config = Config::Parse(absl::StrCat(R"pb(
                                             model { from_workers {} }
                                             update { policy: SYNC }
                                             partition { scheme: MEMORY_BASED }
                                             shard { address: "10.0.0.1:50051" }
                                             shard { address: "ps1:50051" }
                                             workers: 2
                                           )pb",
                                           security),
                              "config");
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *std::move(config);
}

RunCertificates Written(const Config& config, const std::string& folder,
                        absl::Duration lifetime = 365 * kDay) {
  auto written = WriteRunCertificates(config, folder, absl::Now(), lifetime);
  INFO(written.status().message());
  REQUIRE(written.ok());
  return *std::move(written);
}

// The section of the process `self`, which has the files of the process `files`.
Security SecurityOf(const std::string& folder, const std::string& self, const std::string& files,
                    const std::string& run) {
  Security security;
  security.set_certificate(absl::StrCat(folder, "/", files, ".pem"));
  security.set_key(absl::StrCat(folder, "/", files, ".key"));
  security.set_authority(absl::StrCat(folder, "/authority.pem"));
  security.set_name(self);
  security.set_run(run);
  return security;
}

TEST_CASE("each process can be itself with its files, and nobody else") {
  const ScratchFolder scratch;
  const std::string folder = scratch.Path("keys");
  const std::string run = GENERATE("evenshard", "digits");
  Written(ConfigWith(run == "evenshard" ? "" : "security { run: \"digits\" }"), folder);
  const std::string names[] = {"shard-0", "shard-1", "worker-0", "worker-1", "operator", "reader"};
  for (const std::string& files : names) {
    for (const std::string& self : names) {
      CAPTURE(files, self);
      const auto read = ReadTlsFiles(SecurityOf(folder, self, files, run), absl::Now());
      INFO(read.status().message());
      CHECK(read.ok() == (files == self));
    }
    CHECK_FALSE(ReadTlsFiles(SecurityOf(folder, files, files, "another"), absl::Now()).ok());
  }
}

TEST_CASE("certificates last for as long as they were made for") {
  const ScratchFolder scratch;
  const std::string folder = scratch.Path("keys");
  const RunCertificates written = Written(ConfigWith(""), folder, 2 * kDay);
  const Security security = SecurityOf(folder, "worker-1", "worker-1", "evenshard");
  const absl::Time now = absl::Now();
  CHECK(ReadTlsFiles(security, now - absl::Minutes(4)).ok());
  CHECK_FALSE(ReadTlsFiles(security, now - absl::Minutes(6)).ok());
  CHECK(ReadTlsFiles(security, now + kDay).ok());
  CHECK_FALSE(ReadTlsFiles(security, now + 3 * kDay).ok());
  CHECK(ReadTlsFiles(security, now)->ends == written.processes[3].ends);
}

TEST_CASE("a second time the authority stays, and certificates and keys are new") {
  const ScratchFolder scratch;
  const std::string folder = scratch.Path("keys");
  CHECK(Written(ConfigWith(""), folder, kDay).authority_is_new);
  const std::string authority = scratch.Read("keys/authority.pem");
  const std::string key = scratch.Read("keys/worker-0.key");
  CHECK_FALSE(Written(ConfigWith("recovery { spare { address: \"ps2:1\" } replicas: 1 }"), folder)
                  .authority_is_new);
  CHECK(scratch.Read("keys/authority.pem") == authority);
  CHECK(scratch.Read("keys/worker-0.key") != key);
  for (const std::string name : {"worker-0", "shard-2"}) {
    const auto read =
        ReadTlsFiles(SecurityOf(folder, name, name, "evenshard"), absl::Now() + 30 * kDay);
    INFO(read.status().message());
    CHECK(read.ok());
  }
}

TEST_CASE("certificates of another authority are refused") {
  const ScratchFolder scratch;
  Written(ConfigWith(""), scratch.Path("keys"));
  Written(ConfigWith(""), scratch.Path("others"));
  Security security = SecurityOf(scratch.Path("others"), "operator", "operator", "evenshard");
  CHECK(ReadTlsFiles(security, absl::Now()).ok());
  security.set_authority(scratch.Path("keys/authority.pem"));
  const auto read = ReadTlsFiles(security, absl::Now());
  REQUIRE_FALSE(read.ok());
  CHECK(absl::StrContains(read.status().message(), "is not signed by security.authority"));
}

TEST_CASE("the text has a table, the section for the config, and what each host needs") {
  const Config config = ConfigWith("security { run: \"digits\" }");
  const absl::Time ends = absl::FromUnixSeconds(1'800'000'000);
  const RunCertificates certificates = {
      .folder = "keys",
      .authority_is_new = true,
      .authority_ends = ends + 20 * kDay,
      .processes = {{{.name = "shard-0", .uri = "", .hosts = {"10.0.0.1"}}, ends},
                    {{.name = "operator", .uri = "", .hosts = {}}, ends}}};
  CHECK(RunCertificatesText(certificates, config, "run.textproto") ==
        R"(name       certificate         hosts     ends
authority  keys/authority.pem            2027-02-04
shard-0    keys/shard-0.pem    10.0.0.1  2027-01-15
operator   keys/operator.pem             2027-01-15

The authority is new. Keys are beside the certificates, as NAME.key.

For the config:

security {
  run: "digits"
  certificate: "keys/{name}.pem"
  key: "keys/{name}.key"
  authority: "keys/authority.pem"
}

Each host needs authority.pem, and NAME.pem and NAME.key of each process that runs there (psctl is operator); authority.key stays where it is.
)");
}

TEST_CASE("the section names the folder as seen from the config") {
  const auto section = [](const std::string& folder, const std::string& config_path) {
    const RunCertificates certificates = {.folder = folder,
                                          .authority_is_new = false,
                                          .authority_ends = absl::UnixEpoch(),
                                          .processes = {}};
    const std::string text = RunCertificatesText(certificates, ConfigWith(""), config_path);
    CHECK(absl::StrContains(text, "The authority was there."));
    CHECK_FALSE(absl::StrContains(text, "run:"));
    const std::string before = "authority: \"";
    const size_t begin = text.find(before) + before.size();
    return text.substr(begin, text.find("/authority.pem\"", begin) - begin);
  };
  CHECK(section("keys", "run.textproto") == "keys");
  CHECK(section("./keys", "./run.textproto") == "keys");
  CHECK(section("keys", "configs/run.textproto") == "../keys");
  CHECK(section("configs/keys", "configs/run.textproto") == "keys");
  CHECK(section(".", "run.textproto") == ".");
  CHECK(section("/etc/keys", "configs/run.textproto") == "/etc/keys");
}

}  // namespace
}  // namespace evenshard
