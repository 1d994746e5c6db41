#include "common/base/atomic_file.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/testing/scratch_folder.h"

namespace ps {
namespace {

TEST_CASE("a file appears at its path with Commit, and not before") {
  const ScratchFolder folder;
  auto file = AtomicFile::Create(folder.Path("model"), 5);
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(2, "llo").ok());
  REQUIRE((*file)->WriteAt(0, "he").ok());
  CHECK_FALSE(std::filesystem::exists(folder.Path("model")));
  REQUIRE((*file)->Commit().ok());
  CHECK(folder.Read("model") == "hello");
  CHECK(folder.Files().size() == 1);
}

TEST_CASE("an earlier file is replaced with Commit, and kept without") {
  const ScratchFolder folder;
  folder.Write("model", "earlier");
  {
    auto file = AtomicFile::Create(folder.Path("model"));
    REQUIRE(file.ok());
    REQUIRE((*file)->WriteAt(0, "new").ok());
    CHECK(folder.Read("model") == "earlier");
    SECTION("with") {
      REQUIRE((*file)->Commit().ok());
      CHECK(folder.Read("model") == "new");
    }
    SECTION("without") {
      file->reset();
      CHECK(folder.Read("model") == "earlier");
    }
  }
  CHECK(folder.Files() == std::vector<std::string>{"model"});
}

TEST_CASE(
    "a file saved over a symbolic link is written where the link points, and the link stays") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.Path("runs"));
  std::filesystem::create_symlink("runs/model", folder.Path("latest"));
  SECTION("to a file") { folder.Write("runs/model", "earlier"); }
  SECTION("to a file that does not exist yet") {}
  SECTION("by its full path") {
    std::filesystem::remove(folder.Path("latest"));
    std::filesystem::create_symlink(folder.Path("runs/model"), folder.Path("latest"));
  }
  SECTION("by way of another link, in another folder") {
    folder.Write("other", "earlier");
    std::filesystem::create_symlink("../other", folder.Path("runs/model"));
  }
  auto file = AtomicFile::Create(folder.Path("latest"), 3);
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(0, "new").ok());
  REQUIRE((*file)->Commit().ok());
  CHECK(std::filesystem::is_symlink(folder.Path("latest")));
  CHECK(folder.Read("runs/model") == "new");
  CHECK(std::filesystem::exists(folder.Path("other")) ==
        std::filesystem::is_symlink(folder.Path("runs/model")));
}

TEST_CASE("a path that cannot be written is refused at once, by name") {
  const ScratchFolder folder;
  SECTION("no such folder") {
    const absl::Status status = CheckWritable(folder.Path("none/model"));
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK(absl::StrContains(status.message(), "none/model"));
  }
  SECTION("a folder") {
    const absl::Status status = CheckWritable(folder.Path(""));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a device") {
    CHECK(CheckWritable("/dev/null").code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a link to a device") {
    std::filesystem::create_symlink("/dev/null", folder.Path("link"));
    CHECK(CheckWritable(folder.Path("link")).code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a link into a folder that is not there") {
    std::filesystem::create_symlink("none/model", folder.Path("link"));
    const absl::Status status = CheckWritable(folder.Path("link"));
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK(absl::StrContains(status.message(), folder.Path("link")));
  }
  SECTION("links in a circle") {
    std::filesystem::create_symlink("b", folder.Path("a"));
    std::filesystem::create_symlink("a", folder.Path("b"));
    const absl::Status status = CheckWritable(folder.Path("a"));
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(absl::StrContains(status.message(), folder.Path("a")));
  }
  SECTION("a file in place of the folder") {
    folder.Write("file", "");
    CHECK_FALSE(CheckWritable(folder.Path("file/model")).ok());
  }
}

TEST_CASE("more bytes than the disk has are refused at once, and leave nothing") {
  const ScratchFolder folder;
  const auto file = AtomicFile::Create(folder.Path("model"), int64_t{1} << 60);
  CHECK_FALSE(file.ok());
  CHECK(folder.Files().empty());
}

}  // namespace
}  // namespace ps
