#include "tools/atomic_file.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/testing/scratch_folder.h"

namespace ps {
namespace {

TEST_CASE("A file appears at its path with Commit, and not before") {
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

TEST_CASE("An earlier file is replaced with Commit, and kept without") {
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

TEST_CASE("A path that cannot be written is refused at once, by name") {
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
  SECTION("a file in place of the folder") {
    folder.Write("file", "");
    CHECK_FALSE(CheckWritable(folder.Path("file/model")).ok());
  }
}

TEST_CASE("More bytes than the disk has are refused at once, and leave nothing") {
  const ScratchFolder folder;
  const auto file = AtomicFile::Create(folder.Path("model"), int64_t{1} << 60);
  CHECK_FALSE(file.ok());
  CHECK(folder.Files().empty());
}

}  // namespace
}  // namespace ps
