// psctl certificates as an operator calls it, and openssl's opinion of what it makes.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

constexpr char kPsctl[] = "tools/psctl/psctl";

std::string WriteConfig(const ScratchFolder& scratch) {
  return scratch.Write("run.textproto", R"pb(
    model { from_workers {} }
    update { policy: SYNC }
    partition { scheme: MEMORY_BASED }
    shard { address: "10.0.0.1:50051" }
    workers: 2
    security {
      certificate: "nowhere/{name}.pem"
      key: "nowhere/{name}.key"
      authority: "nowhere/authority.pem"
    }
  )pb");
}

struct Outcome {
  int code;
  std::string output;
};

Outcome Run(const ScratchFolder& scratch, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {kPsctl, "certificates",
                                      absl::StrCat("--config=", WriteConfig(scratch))};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Program program(command);
  const int code = program.Wait();
  return {code, program.output()};
}

TEST_CASE("openssl trusts the certificates for clients and servers, and finds them strict") {
  const ScratchFolder scratch;
  const Outcome made = Run(scratch, {"--out", scratch.Path("keys/")});
  INFO(made.output);
  REQUIRE(made.code == 0);
  CHECK(absl::StrContains(made.output,
                          absl::StrCat("  key: \"", scratch.Path("keys"), "/{name}.key\"\n")));
  std::vector<std::string> command = {"/usr/bin/openssl",
                                      "verify",
                                      "-x509_strict",
                                      "-CAfile",
                                      scratch.Path("keys/authority.pem"),
                                      "-purpose",
                                      GENERATE("sslclient", "sslserver")};
  std::string expected;
  for (const std::string name : {"shard-0", "worker-0", "worker-1", "operator", "reader"}) {
    const std::string path = scratch.Path(absl::StrCat("keys/", name, ".pem"));
    command.push_back(path);
    absl::StrAppend(&expected, path, ": OK\n");
  }
  Program verify(command);
  CHECK(verify.Wait() == 0);
  CHECK(verify.output() == expected);
}

TEST_CASE("openssl reads the names in a certificate") {
  const ScratchFolder scratch;
  REQUIRE(Run(scratch, {"--out", scratch.Path("keys")}).code == 0);
  Program show({"/usr/bin/openssl", "x509", "-noout", "-subject", "-issuer", "-ext",
                "subjectAltName,keyUsage,extendedKeyUsage,basicConstraints", "-in",
                scratch.Path("keys/shard-0.pem")});
  CHECK(show.Wait() == 0);
  CHECK(
      absl::StrContains(show.output(), "subject=CN = shard-0\nissuer=CN = Evenshard authority\n"));
  CHECK(
      absl::StrContains(show.output(), "URI:evenshard://evenshard/shard/0, IP Address:10.0.0.1\n"));
  CHECK(absl::StrContains(show.output(),
                          "TLS Web Client Authentication, TLS Web Server Authentication\n"));
}

TEST_CASE("a key that openssl has made and others' certificates are of no use") {
  const ScratchFolder scratch;
  REQUIRE(Run(scratch, {"--out", scratch.Path("keys")}).code == 0);
  const std::string key = scratch.Path("keys/authority.key");
  Program make({"/usr/bin/openssl", "genpkey", "-algorithm", "EC", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-out", key});
  REQUIRE(make.Wait() == 0);
  const Outcome again = Run(scratch, {"--out", scratch.Path("keys")});
  CHECK(again.code == 1);
  CHECK(again.output == key + " is not the key of authority.pem, allowed: its own\n");
}

TEST_CASE("an authority that openssl has made signs too") {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch.Path("keys"));
  Program make({"/usr/bin/openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
                "/CN=ours", "-days", "30", "-addext", "keyUsage=critical,keyCertSign", "-keyout",
                scratch.Path("keys/authority.key"), "-out", scratch.Path("keys/authority.pem")});
  REQUIRE(make.Wait() == 0);
  const Outcome made = Run(scratch, {"--out", scratch.Path("keys")});
  INFO(made.output);
  CHECK(made.code == 0);
  Program verify({"/usr/bin/openssl", "verify", "-x509_strict", "-CAfile",
                  scratch.Path("keys/authority.pem"), scratch.Path("keys/worker-1.pem")});
  CHECK(verify.Wait() == 0);
}

TEST_CASE("psctl certificates refuses what it cannot do, with the reason") {
  const ScratchFolder scratch;
  for (const std::string days : {"0", "-1", "3651"}) {
    const Outcome wrong = Run(scratch, {"--out", scratch.Path("keys"), "--days=" + days});
    CHECK(wrong.code == 2);
    CHECK(wrong.output == absl::StrCat("--days: is ", days, ", allowed: 1 to 3650\n"));
  }
  CHECK_FALSE(std::filesystem::exists(scratch.Path("keys")));
  CHECK(Run(scratch, {"--out", scratch.Path("keys"), "--days=3650"}).code == 0);

  const Outcome file = Run(scratch, {"--out", scratch.Write("file", "")});
  CHECK(file.code == 1);
  CHECK(file.output == absl::StrCat("--out: \"", scratch.Path("file"),
                                    "\" is a file, allowed: a folder, or none yet\n"));

  CHECK(Run(scratch, {}).code == 2);
  const Outcome config = Run(scratch, {"--out", scratch.Path("keys"), "--set", "workers=0"});
  CHECK(config.code == 2);
  CHECK(absl::StrContains(config.output, "workers"));
}

}  // namespace
}  // namespace evenshard
