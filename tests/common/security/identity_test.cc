#include "common/security/identity.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace evenshard {
namespace {

Identity Of(const std::vector<std::string>& uris) {
  const absl::StatusOr<Identity> identity = Identity::Of(uris, "run");
  INFO(identity.status().ToString());
  REQUIRE(identity.ok());
  return *identity;
}

TEST_CASE("names of processes") {
  for (const std::string name : {"worker-0", "shard-12", "operator", "reader"}) {
    const std::optional<ProcessName> parsed = ProcessName::Parse(name);
    REQUIRE(parsed.has_value());
    CHECK(parsed->ToString() == name);
  }
  for (const std::string name : {"", "worker", "worker-", "worker-x", "worker--1", "worker-1-2",
                                 "worker-1234567", "operator-1", "Reader", "shard-1 "}) {
    INFO(name);
    CHECK(!ProcessName::Parse(name).has_value());
  }
}

TEST_CASE("a certificate may name several processes") {
  const Identity identity = Of({"evenshard://run/worker/0-3,7", "evenshard://run/shard/2"});
  for (const int rank : {0, 3, 7}) CHECK(identity.MayBe({Role::kWorker, rank}));
  for (const int rank : {4, 6, 8, 37}) CHECK(!identity.MayBe({Role::kWorker, rank}));
  CHECK(identity.MayBe({Role::kShard, 2}));
  CHECK(!identity.MayBe({Role::kShard, 0}));
  CHECK(identity.Has(Role::kWorker));
  CHECK(!identity.Has(Role::kOperator));
  CHECK(identity.ToString() == "worker 0-3,7, shard 2");
}

TEST_CASE("names of other runs and other systems give nothing") {
  const Identity identity =
      Of({"evenshard://other/operator", "evenshard://run2/operator", "evenshard://ru/operator",
          "spiffe://run/operator", "https://run/operator", "evenshard:/run/operator"});
  for (const Role role : kRoles) CHECK(!identity.Has(role));
  CHECK(identity.ToString() == "nobody");
  CHECK(Identity::Nobody("it has no role").ToString() == "nobody (it has no role)");
  CHECK(!Of({}).Has(Role::kReader));
  CHECK(Identity::Anybody().MayBe({Role::kShard, 5}));
}

TEST_CASE("a name of the run that says no role is an error") {
  for (const std::string path :
       {"", "worker", "worker/", "worker/a", "worker/3-1", "worker/1-", "worker/-1", "worker/1-2-3",
        "worker/1,,2", "worker/0000001", "worker/1/2", "operator/", "operator/1", "admin",
        "reader/all", "shard/*"}) {
    const absl::StatusOr<Identity> identity = Identity::Of({"evenshard://run/" + path}, "run");
    INFO(path);
    REQUIRE(!identity.ok());
    CHECK_THAT(std::string(identity.status().message()),
               Catch::Contains("allowed: evenshard://run/worker/0-3, /shard/0, /operator"));
  }
}

TEST_CASE("names of certificates are read back") {
  for (const ProcessName name : {ProcessName{Role::kWorker, 3}, ProcessName{Role::kShard, 0},
                                 ProcessName{Role::kOperator}, ProcessName{Role::kReader}}) {
    CHECK(Of({UriOf("run", name)}).MayBe(name));
  }
  CHECK(UriOf("a.b", {Role::kWorker, 3}) == "evenshard://a.b/worker/3");
}

}  // namespace
}  // namespace evenshard
