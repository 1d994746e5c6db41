#include "common/security/tls_files.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr char kWorker[] = "URI:evenshard://run/worker/0-1";

struct Files {
  ScratchFolder folder;
  TestAuthority authority{folder, "authority"};

  Security Of(const std::string& name) const {
    Security security = authority.SecurityOf(name);
    security.set_name("worker-1");
    return security;
  }
};

std::string ErrorOf(const Security& security) {
  return std::string(ReadTlsFiles(security, absl::Now()).status().message());
}

TEST_CASE("files that are right say who the process is, and until when") {
  Files files;
  files.authority.Issue("right", {.names = {kWorker}, .ends = 1000});
  const absl::StatusOr<TlsIdentity> read = ReadTlsFiles(files.Of("right"), absl::Now());
  INFO(read.status().ToString());
  REQUIRE(read.ok());
  CHECK(read->identity.ToString() == "worker 0-1");
  CHECK(absl::AbsDuration(read->ends - absl::Now() - absl::Seconds(1000)) < absl::Seconds(30));
}

TEST_CASE("files that are wrong are named with what is allowed") {
  Files files;
  files.authority.Issue("right", {.names = {kWorker}});

  Security security = files.Of("none");
  CHECK_THAT(ErrorOf(security), Contains("cannot read security.certificate (\"") &&
                                    Contains("none.pem\"): No such file"));
  security = files.Of("right");
  security.set_key(files.folder.Write("text.key", "no key"));
  REQUIRE(chmod(security.key().c_str(), 0600) == 0);
  CHECK_THAT(ErrorOf(security), Contains("text.key\") has no key that can be read"));
  security.set_certificate(files.folder.Write("text.pem", "no certificate"));
  CHECK_THAT(ErrorOf(security), Contains("text.pem\") has no certificate, allowed: PEM"));

  security = files.Of("right");
  REQUIRE(chmod(security.key().c_str(), 0644) == 0);
  CHECK_THAT(ErrorOf(security),
             Contains("right.key\") has mode 644, so that others can read or change it, allowed: "
                      "600 or 640 (chmod 600)"));
  REQUIRE(chmod(security.key().c_str(), 0600) == 0);

  files.authority.Issue("another", {.names = {kWorker}});
  security.set_key(files.folder.Path("another.key"));
  CHECK_THAT(ErrorOf(security), Contains("another.key\") is not the key of security.certificate"));

  files.authority.Issue("expired", {.names = {kWorker}, .ends = -60});
  CHECK_THAT(ErrorOf(files.Of("expired")), Contains("expired.pem\") has expired on 20"));
  files.authority.Issue("early", {.names = {kWorker}, .begins = 600});
  CHECK_THAT(ErrorOf(files.Of("early")),
             Contains("early.pem\") is valid from 20") && Contains("and this host has 20"));

  files.authority.Issue("nameless", {});
  CHECK_THAT(ErrorOf(files.Of("nameless")),
             Contains("nameless.pem\") is of nobody in run run, and this is worker-1, allowed: one "
                      "with the name evenshard://run/worker/1"));
  files.authority.Issue("other", {.names = {"URI:evenshard://run/worker/2"}});
  CHECK_THAT(ErrorOf(files.Of("other")), Contains("is of worker 2 in run run"));
  files.authority.Issue("god", {.names = {"URI:evenshard://run/god"}});
  CHECK_THAT(ErrorOf(files.Of("god")),
             Contains("the name \"evenshard://run/god\" has no role, allowed: "));

  const TestAuthority stranger(files.folder, "stranger");
  stranger.Issue("strange", {.names = {kWorker}});
  CHECK_THAT(ErrorOf(files.Of("strange")),
             Contains("strange.pem\") is not signed by security.authority ("));
  const TestAuthority old(files.folder, "old", /*ends=*/-10);
  old.Issue("of_old", {.names = {kWorker}});
  security = files.Of("of_old");
  security.set_authority(old.path());
  CHECK_THAT(ErrorOf(security),
             Contains("security.authority (\"") && Contains("old.pem\") has expired on 20"));
}

TEST_CASE("a certificate that ends soon is told in the log") {
  Files files;
  files.authority.Issue("soon", {.names = {kWorker}, .ends = 6 * 24 * 3600});
  files.authority.Issue("late", {.names = {kWorker}, .ends = 8 * 24 * 3600});
  const CapturedLog log;
  LogExpiry(files.Of("late"));
  CHECK(log.text().empty());
  LogExpiry(files.Of("soon"));
  CHECK_THAT(log.text(), Contains("soon.pem\") expires on 20"));
}

TEST_CASE("plaintext stays on the host, unless the config says insecure") {
  Security security;
  for (const std::string address :
       {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "LOCALHOST:1", "[::1]:1", "unix:/tmp/x"}) {
    INFO(address);
    CHECK(AllowsPlaintext(security, address));
  }
  for (const std::string address : {"10.0.0.1:1", "0.0.0.0:1", "[::]:1", "host:1", "localhost.a:1",
                                    "128.0.0.1:1", "[::2]:1", "127.0.0.1.a:1"}) {
    INFO(address);
    CHECK(!AllowsPlaintext(security, address));
  }
  ClusterConfig config;
  config.add_shard()->set_address("127.0.0.1:1");
  CHECK(CheckSecurity(config).ok());
  config.add_shard()->set_address("10.0.0.1:1");
  CHECK_THAT(
      std::string(CheckSecurity(config).message()),
      Contains("shard[1].address is \"10.0.0.1:1\", which is of other hosts, and nothing says "
               "who may do what, allowed: security {"));
  config.mutable_shard(1)->set_address("127.0.0.1:2");
  config.mutable_recovery()->add_spare()->set_address("10.0.0.2:1");
  CHECK_THAT(std::string(CheckSecurity(config).message()),
             Contains("recovery.spare[0].address is \"10.0.0.2:1\""));
  config.mutable_security()->set_insecure(true);
  CHECK(CheckSecurity(config).ok());
  const CapturedLog log;
  CHECK(CheckAndLogSecurity(config).ok());
  CHECK_THAT(log.text(), Contains("security.insecure: nothing is encrypted"));
}

TEST_CASE("others cannot read what a process proves itself to etcd with") {
  ClusterConfig config;
  Recovery::Etcd& etcd = *config.mutable_recovery()->mutable_etcd();
  const ScratchFolder folder;
  const std::string secret = folder.Write("secret", "x\n");
  for (const auto set : {&Recovery::Etcd::set_key<const std::string&>,
                         &Recovery::Etcd::set_password_file<const std::string&>}) {
    etcd.Clear();
    (etcd.*set)(secret);
    REQUIRE(chmod(secret.c_str(), 0644) == 0);
    CHECK_THAT(std::string(CheckSecurity(config).message()),
               Contains("recovery.etcd.") &&
                   Contains("secret\") has mode 644, so that others can read or change it"));
    REQUIRE(chmod(secret.c_str(), 0600) == 0);
    CHECK(CheckSecurity(config).ok());
  }
}

TEST_CASE("the workers of a ring are reached as the config says, and nobody else") {
  ClusterConfig config;
  config.set_topology(ClusterConfig::RING);
  config.add_shard()->set_address("10.0.0.1:1");
  config.mutable_ring()->add_address("127.0.0.1:1");
  CHECK(CheckSecurity(config).ok());
  config.mutable_ring()->add_address("10.0.0.1:1");
  CHECK_THAT(std::string(CheckSecurity(config).message()),
             Contains("ring.address[1] is \"10.0.0.1:1\", which is of other hosts"));
}

TEST_CASE("a process that starts says what is wrong with its files") {
  Files files;
  files.authority.Issue("expired", {.names = {kWorker}, .ends = -60});
  const CapturedLog log;
  ClusterConfig config;
  *config.mutable_security() = files.Of("expired");
  CHECK_THAT(std::string(CheckAndLogSecurity(config).message()), Contains("has expired on 20"));
  CHECK(log.text().empty());
}

TEST_CASE("processes say who they are as the config reads it") {
  for (const auto& [self, name] : {std::pair(ProcessName{Role::kShard, 2}, "shard-2"),
                                   std::pair(ProcessName{Role::kWorker, -3}, "worker-0"),
                                   std::pair(ProcessName{Role::kOperator}, "operator"),
                                   std::pair(ProcessName{Role::kReader}, "reader")}) {
    CHECK(NameOverride(self) == "security.name=" + std::string(name));
    CHECK(ProcessName::Parse(name).has_value());
  }
}

}  // namespace
}  // namespace evenshard
