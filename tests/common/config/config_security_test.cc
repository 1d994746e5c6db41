// Tests the part of a config that says who may do what.

#include <catch2/catch.hpp>
#include <string>

#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

using Catch::Contains;

TEST_CASE("the name of a process stands in the paths of its files") {
  const PlannedConfig config = Valid(
      kConfig, {"security={certificate: 'keys/{name}.pem' key: '/{name}/{name}' authority: 'ca'}",
                "security.name=worker-1"});
  CHECK_THAT(config.proto().security().certificate(), Catch::EndsWith("keys/worker-1.pem"));
  CHECK(config.proto().security().key() == "/worker-1/worker-1");
  CHECK(config.proto().security().run() == "evenshard");
  CHECK(Valid(kConfig, {"security.name=shard-0", "security.name=operator"})
            .proto()
            .security()
            .name() == "operator");
}

TEST_CASE("files go together, and exclude plaintext") {
  CHECK_THAT(
      ErrorOfOverride("security={certificate: 'a' key: 'b'}"),
      Contains("security.authority: is missing, allowed: a file in PEM, with certificate, key "
               "and authority together"));
  CHECK_THAT(ErrorOfOverride("security={key: 'b'}"), Contains("security.certificate: is missing"));
  CHECK_THAT(
      ErrorOfOverride("security={certificate: 'a' key: 'b' authority: 'c' insecure: true}"),
      Contains("security.insecure: is true, and security.certificate is set, allowed: one of the "
               "two"));
}

TEST_CASE("names of runs and processes are of few letters") {
  for (const std::string run : {"", "a/b", "a b", "*"}) {
    CHECK_THAT(ErrorOfOverride("security={run: '" + run + "'}"),
               Contains("security.run: is \"" + run +
                        "\", allowed: 1 to 100 letters, digits, '-', '_' and '.'"));
  }
  CHECK_THAT(ErrorOfOverride("security={name: 'worker'}"),
             Contains("security.name: is \"worker\", allowed: worker-N, shard-N, operator or "
                      "reader, with N from 0 to 999999"));
}

TEST_CASE("etcd's files and its user go together") {
  const auto error = [](const std::string& etcd) {
    return ErrorOfOverride("recovery={worker_loss: WAIT etcd {endpoint: 'h:1' " + etcd + "}}");
  };
  CHECK_THAT(error("certificate: 'a' authority: 'c'"),
             Contains("recovery.etcd.key: is missing, allowed: a file in PEM"));
  CHECK_THAT(error("certificate: 'a' key: 'b'"), Contains("recovery.etcd.authority: is missing"));
  CHECK_THAT(error("user: 'u' authority: 'c'"),
             Contains("recovery.etcd.password_file: is missing"));
  CHECK_THAT(error("user: 'u' password_file: 'p'"),
             Contains("the password of recovery.etcd.user would travel in plaintext"));
}

}  // namespace
}  // namespace evenshard
