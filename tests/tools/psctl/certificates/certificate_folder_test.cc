#include "tools/psctl/certificates/certificate_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/scratch_folder.h"
#include "tools/psctl/certificates/authority.h"

namespace evenshard {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat status;
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

CertificateFolder Opened(const std::string& path) {
  auto folder = CertificateFolder::Open(path);
  INFO(folder.status().message());
  REQUIRE(folder.ok());
  return *std::move(folder);
}

std::string WhyNotOpened(const std::string& path) {
  const auto folder = CertificateFolder::Open(path);
  REQUIRE_FALSE(folder.ok());
  return std::string(folder.status().message());
}

// Why the authority in keys/ cannot be used.
std::string WhyNoAuthority(const ScratchFolder& scratch, absl::Time now = absl::Now()) {
  const auto authority = Opened(scratch.Path("keys")).OpenAuthority(now);
  REQUIRE_FALSE(authority.ok());
  return std::string(authority.status().message());
}

// Makes keys/ with an authority.
void MakeAuthority(const ScratchFolder& scratch) {
  const auto made = Opened(scratch.Path("keys")).OpenAuthority(absl::Now());
  REQUIRE(made.ok());
  CHECK(made->is_new);
}

TEST_CASE("nobody else can read the folder and the keys, whatever the umask") {
  const ScratchFolder scratch;
  const mode_t before = umask(GENERATE(0, 022, 077));
  const CertificateFolder folder = Opened(scratch.Path("keys"));
  const bool made = folder.OpenAuthority(absl::Now()).ok();
  const absl::Status written = folder.Write("shard-0", {"a certificate", "a key"});
  umask(before);
  REQUIRE(made);
  REQUIRE(written.ok());
  CHECK(ModeOf(scratch.Path("keys")) == 0700);
  for (const std::string name : {"authority", "shard-0"}) {
    CHECK(ModeOf(scratch.Path("keys/" + name + ".key")) == 0600);
    CHECK(ModeOf(scratch.Path("keys/" + name + ".pem")) == 0644);
  }
  CHECK(scratch.Read("keys/shard-0.pem") == "a certificate");
  CHECK(scratch.Read("keys/shard-0.key") == "a key");
}

TEST_CASE("files are replaced, and keys that others could read become private") {
  const ScratchFolder scratch;
  const CertificateFolder folder = Opened(scratch.Path("keys"));
  scratch.Write("keys/shard-0.key", "an old key");
  std::filesystem::permissions(scratch.Path("keys/shard-0.key"), std::filesystem::perms(0644));
  REQUIRE(folder.Write("shard-0", {"a certificate", "a key"}).ok());
  CHECK(scratch.Read("keys/shard-0.key") == "a key");
  CHECK(ModeOf(scratch.Path("keys/shard-0.key")) == 0600);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.Path("keys"))) {
    files.push_back(entry.path().filename());
  }
  std::sort(files.begin(), files.end());
  CHECK(files == std::vector<std::string>{"shard-0.key", "shard-0.pem"});
}

TEST_CASE("a pair of which one cannot be written stays as it was") {
  const ScratchFolder scratch;
  const CertificateFolder folder = Opened(scratch.Path("keys"));
  scratch.Write("keys/shard-0.key", "the former key");
  std::filesystem::create_directory(scratch.Path("keys/shard-0.pem"));
  CHECK(absl::StrContains(folder.Write("shard-0", {"a certificate", "a key"}).message(),
                          "shard-0.pem"));
  CHECK(scratch.Read("keys/shard-0.key") == "the former key");
}

TEST_CASE("an authority that is there stays as it is") {
  const ScratchFolder scratch;
  MakeAuthority(scratch);
  const std::string certificate = scratch.Read("keys/authority.pem");
  const std::string key = scratch.Read("keys/authority.key");
  const auto again = Opened(scratch.Path("keys")).OpenAuthority(absl::Now());
  REQUIRE(again.ok());
  CHECK_FALSE(again->is_new);
  CHECK(again->authority.ToPem()->certificate == certificate);
  CHECK(scratch.Read("keys/authority.pem") == certificate);
  CHECK(scratch.Read("keys/authority.key") == key);
}

TEST_CASE("half an authority is refused, and none is made beside it") {
  const ScratchFolder scratch;
  MakeAuthority(scratch);
  SECTION("without its key") {
    std::filesystem::remove(scratch.Path("keys/authority.key"));
    CHECK(absl::StartsWith(
        WhyNoAuthority(scratch),
        scratch.Path("keys/authority.pem") + " is there without authority.key, allowed: both, "));
    CHECK_FALSE(std::filesystem::exists(scratch.Path("keys/authority.key")));
  }
  SECTION("without its certificate") {
    std::filesystem::remove(scratch.Path("keys/authority.pem"));
    CHECK(absl::StartsWith(
        WhyNoAuthority(scratch),
        scratch.Path("keys/authority.key") + " is there without authority.pem, allowed: both, "));
    CHECK_FALSE(std::filesystem::exists(scratch.Path("keys/authority.pem")));
  }
}

TEST_CASE("an authority whose key others can read is refused") {
  const ScratchFolder scratch;
  MakeAuthority(scratch);
  const auto mode = GENERATE(0640, 0604, 0620, 0602);
  std::filesystem::permissions(scratch.Path("keys/authority.key"), std::filesystem::perms(mode));
  CHECK(WhyNoAuthority(scratch) ==
        absl::StrCat(scratch.Path("keys/authority.key"), " has mode ",
                     mode == 0640   ? "640"
                     : mode == 0604 ? "604"
                     : mode == 0620 ? "620"
                                    : "602",
                     ", so that others can read or change it, allowed: 600 (chmod 600)"));
}

TEST_CASE("an authority that is not one is refused with the file and the reason") {
  const ScratchFolder scratch;
  MakeAuthority(scratch);
  CHECK(absl::StartsWith(WhyNoAuthority(scratch, absl::Now() + absl::Hours(24) * 365 * 11),
                         scratch.Path("keys/authority.pem") + " has expired on "));
  scratch.Write("keys/authority.pem", "nothing");
  CHECK(absl::StartsWith(WhyNoAuthority(scratch),
                         scratch.Path("keys/authority.pem") + " has no certificate, allowed: PEM"));
}

TEST_CASE("what is no folder of its owner alone is refused") {
  const ScratchFolder scratch;
  CHECK(WhyNotOpened(scratch.Write("file", "")) ==
        absl::StrCat("--out: \"", scratch.Path("file"),
                     "\" is a file, allowed: a folder, or none yet"));
  CHECK(WhyNotOpened(scratch.Path("no/keys")) == absl::StrCat("cannot make the folder ",
                                                              scratch.Path("no/keys"),
                                                              ": No such file or directory"));
  Opened(scratch.Path("keys"));
  const auto mode = GENERATE(0770, 0777);
  std::filesystem::permissions(scratch.Path("keys"), std::filesystem::perms(mode));
  CHECK(WhyNotOpened(scratch.Path("keys")) ==
        absl::StrCat("--out: \"", scratch.Path("keys"), "\" has mode ",
                     mode == 0770 ? "770" : "777",
                     ", so that others can write in it, allowed: a folder in which only its owner "
                     "can write (chmod 700), or none yet"));
}

TEST_CASE("one at a time works in a folder") {
  const ScratchFolder scratch;
  {
    const CertificateFolder first = Opened(scratch.Path("keys"));
    CHECK(WhyNotOpened(scratch.Path("keys")) ==
          absl::StrCat("--out: another psctl certificates works in \"", scratch.Path("keys"),
                       "\", allowed: one at a time"));
  }
  Opened(scratch.Path("keys"));
}

}  // namespace
}  // namespace evenshard
