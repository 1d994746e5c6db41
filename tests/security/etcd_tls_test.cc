// An etcd that asks who calls it.

#include <google/protobuf/unknown_field_set.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "common/control/etcd/etcd_client.h"
#include "common/security/credentials.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/security/secure_cluster.h"

namespace evenshard {
namespace {

using Catch::Contains;

// A message of strings, by number.
std::string Strings(const std::map<int, std::string>& fields) {
  google::protobuf::UnknownFieldSet set;
  for (const auto& [number, value] : fields) set.AddLengthDelimited(number, value);
  std::string bytes;
  REQUIRE(set.SerializeToString(&bytes));
  return bytes;
}

struct Fixture {
  Fixture() {
    authority.Issue("etcd", {.names = {"IP:127.0.0.1"}});
    authority.Issue("client", {});
    access.set_authority(authority.path());
    access.set_certificate(folder.Path("client.pem"));
    access.set_key(folder.Path("client.key"));
  }
  std::vector<std::string> Flags() const {
    return {"--cert-file=" + folder.Path("etcd.pem"), "--key-file=" + folder.Path("etcd.key"),
            "--client-cert-auth", "--trusted-ca-file=" + authority.path()};
  }

  ScratchFolder folder;
  TestAuthority authority{folder, "authority"};
  Recovery::Etcd access;
};

absl::Status Ask(const EtcdServer& server, const Recovery::Etcd& access) {
  EtcdClient client({.endpoints = {server.endpoint()}, .access = access});
  etcdserverpb::RangeRequest request;
  request.set_key("/");
  return client.Range(request, {}).status();
}

TEST_CASE("etcd is called by TLS, by those whom its authority has signed") {
  REQUIRE_ETCD();
  Fixture fixture;
  const EtcdServer server(fixture.Flags(), fixture.access);
  CHECK(Ask(server, fixture.access).ok());
  CHECK(absl::IsUnavailable(Ask(server, {})));
  Recovery::Etcd unknown = fixture.access;
  unknown.clear_certificate();
  unknown.clear_key();
  CHECK(absl::IsUnavailable(Ask(server, unknown)));
  const TestAuthority stranger(fixture.folder, "stranger");
  Recovery::Etcd other = fixture.access;
  other.set_authority(stranger.path());
  CHECK(absl::IsUnavailable(Ask(server, other)));
}

TEST_CASE("a user of etcd is known by a password, and goes on when the token has ended") {
  REQUIRE_ETCD();
  Fixture fixture;
  std::vector<std::string> flags = fixture.Flags();
  flags.push_back("--auth-token-ttl=4");
  const EtcdServer server(flags, fixture.access);
  // Roles and users are set up by messages that the client of this project does not have.
  const auto channel = grpc::CreateChannel(
      server.endpoint(), ServiceCredentials(fixture.access.authority(),
                                            fixture.access.certificate(), fixture.access.key()));
  const auto set_up = [&](const std::string& method, const std::map<int, std::string>& fields) {
    const Answer answer = CallAny(channel, "/etcdserverpb.Auth/" + method, Strings(fields));
    INFO(method << ": " << answer.status.error_message());
    REQUIRE(!answer.bytes.empty());
  };
  set_up("RoleAdd", {{1, "root"}});
  set_up("UserAdd", {{1, "root"}, {2, "right"}});
  set_up("UserGrantRole", {{1, "root"}, {2, "root"}});
  set_up("AuthEnable", {});

  Recovery::Etcd access = fixture.access;
  CHECK_THAT(std::string(Ask(server, access).message()), Contains("permission denied"));
  access.set_user("root");
  access.set_password_file(fixture.folder.Write("password", "right\n"));
  CHECK(Ask(server, access).ok());
  EtcdClient client({.endpoints = {server.endpoint()}, .access = access});
  etcdserverpb::RangeRequest request;
  request.set_key("/");
  CHECK(client.Range(request, {}).ok());
  absl::SleepFor(absl::Seconds(6));  // longer than a token lives
  AwaitTrue([&] { return client.Range(request, {}).ok(); });

  access.set_password_file(fixture.folder.Write("wrong", "wrong\n"));
  CHECK_THAT(std::string(Ask(server, access).message()),
             Contains("authentication failed, invalid user ID or password"));
  access.set_password_file(fixture.folder.Path("none"));
  CHECK_THAT(std::string(Ask(server, access).message()),
             Contains("cannot read a password from recovery.etcd.password_file (\""));
}

}  // namespace
}  // namespace evenshard
