#include "common/process/local_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// A folder in which this process looks for runs.
struct Place {
  Place() { setenv("XDG_RUNTIME_DIR", folder.Path("").c_str(), /*overwrite=*/1); }
  ~Place() { unsetenv("XDG_RUNTIME_DIR"); }

  std::string Runs() const { return folder.Path("evenshard"); }
  static std::string Refusal(const absl::Status& status) {
    CHECK(absl::IsFailedPrecondition(status));
    return std::string(status.message());
  }

  const ScratchFolder folder;
};

}  // namespace

TEST_CASE("a run is found by its name, or as the latest, until it is over") {
  const Place place;
  CHECK(absl::IsNotFound(FindLocalRun("").status()));
  {
    const auto entry = LocalRunEntry::Write({"mine", "/a/config", {"workers=2"}});
    REQUIRE(entry.ok());
    for (const std::string name : {"", "mine"}) {
      const auto found = FindLocalRun(name);
      REQUIRE(found.ok());
      CHECK(found->config == "/a/config");
      CHECK(found->overrides == std::vector<std::string>{"workers=2"});
    }
    CHECK_THAT(std::string(FindLocalRun("yours").status().message()), Contains("--run=mine"));
    CHECK(absl::IsAlreadyExists(LocalRunEntry::Write({"mine", "/b/config", {}}).status()));
    CHECK(FindLocalRun("mine")->config == "/a/config");
  }
  CHECK(absl::IsNotFound(FindLocalRun("").status()));
}

TEST_CASE("a name is free although somebody looks whether its run is over") {
  const Place place;
  std::atomic<bool> looks = true;
  std::thread looker([&] {
    while (looks) FindLocalRun("").IgnoreError();
  });
  int taken = 0;
  for (int i = 0; i < 1000; ++i) taken += LocalRunEntry::Write({"mine", "/a/config", {}}).ok();
  looks = false;
  looker.join();
  CHECK(taken == 1000);
}

TEST_CASE("a run is found although another one of its name ends when it begins") {
  const Place place;
  std::atomic<int> lost = 0;
  const auto begin_and_end = [&] {
    for (int i = 0; i < 1000; ++i) {
      const auto entry = LocalRunEntry::Write({"mine", "/a/config", {}});
      if (entry.ok() && !FindLocalRun("mine").ok()) ++lost;
    }
  };
  std::thread other(begin_and_end);
  begin_and_end();
  other.join();
  CHECK(lost == 0);
}

TEST_CASE("a folder in which others could name runs is refused") {
  const Place place;
  const auto check = [](const std::string& problem) {
    CHECK_THAT(Place::Refusal(FindLocalRun("").status()), Contains(problem));
    CHECK_THAT(Place::Refusal(LocalRunEntry::Write({"mine", "/a/config", {}}).status()),
               Contains(problem));
  };
  SECTION("a link") {
    const std::string target = place.folder.Path("elsewhere");
    std::filesystem::create_directory(target);
    std::filesystem::create_directory_symlink(target, place.Runs());
    check("evenshard: is not a folder of this user");
  }
  SECTION("a file") {
    place.folder.Write("evenshard", "");
    check("evenshard: is not a folder of this user");
  }
  SECTION("one to which others may write") {
    REQUIRE(mkdir(place.Runs().c_str(), 0700) == 0);
    const mode_t mode = GENERATE(0770, 0707);
    REQUIRE(chmod(place.Runs().c_str(), mode) == 0);
    check("evenshard: others may write to it");
  }
  SECTION("another user's") {
    REQUIRE(mkdir(place.Runs().c_str(), 0700) == 0);
    if (chown(place.Runs().c_str(), 12345, 12345) != 0) return;  // not root
    check("evenshard: is not a folder of this user");
  }
}

}  // namespace evenshard
