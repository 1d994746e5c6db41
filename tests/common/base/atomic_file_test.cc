#include "common/base/atomic_file.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/testing/dice.h"
#include "tests/testing/scratch_folder.h"

namespace {

// What was asked of the system, in order, while it is not null.
std::vector<std::string>* asked = nullptr;

}  // namespace

// In place of the C library's.
extern "C" int fsync(int fd) {
  struct stat status;
  if (asked != nullptr && fstat(fd, &status) == 0) {
    asked->push_back(S_ISDIR(status.st_mode) ? "sync the folder" : "sync the file");
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (asked != nullptr) asked->push_back("rename");
  return static_cast<int>(syscall(SYS_rename, from, to));
}

namespace evenshard {
namespace {

TEST_CASE("a file is on disk before it gets its name, and the name before Commit returns") {
  const ScratchFolder folder;
  auto file = AtomicFile::Create(folder.Path("model"));
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(0, std::string(GENERATE(5, 1 << 20), 'x')).ok());
  std::vector<std::string> order;
  asked = &order;
  const absl::Status committed = (*file)->Commit();
  asked = nullptr;
  REQUIRE(committed.ok());
  CHECK(order == std::vector<std::string>{"sync the file", "rename", "sync the folder"});
}

TEST_CASE("a file has the mode that it is given, whatever the umask and what it replaces") {
  const ScratchFolder folder;
  const bool replaces = GENERATE(false, true);
  const mode_t mode = GENERATE(0600, 0644);
  if (replaces) folder.Write("key", "readable by all");
  const mode_t umask_before = umask(GENERATE(0, 027, 077));
  auto file = AtomicFile::Create(folder.Path("key"), 0, mode);
  umask(umask_before);
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(0, "secret").ok());
  REQUIRE((*file)->Commit().ok());
  struct stat status;
  REQUIRE(stat(folder.Path("key").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == mode);
  CHECK(folder.Read("key") == "secret");
}

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

TEST_CASE("large pieces are written whole wherever they begin and end") {
  const ScratchFolder folder;
  const size_t size = 5 << 20;
  std::string expected(size, '.');
  const auto reserved = GENERATE(true, false);
  auto file = AtomicFile::Create(folder.Path("model"), reserved ? size : 0);
  REQUIRE(file.ok());
  Dice dice(7);
  // Out of order, as chunks come, and with small ones between them.
  std::vector<std::pair<size_t, size_t>> pieces;
  for (size_t begin = 0; begin < size;) {
    const size_t length =
        std::min<size_t>(size - begin, dice.Once(3) ? dice.Int(1, 9000) : dice.Int(1, 3 << 20));
    pieces.emplace_back(begin, length);
    begin += length;
  }
  REQUIRE(pieces.size() > 3);
  std::reverse(pieces.begin(), pieces.end());
  for (const auto& [begin, length] : pieces) {
    for (size_t i = begin; i < begin + length; ++i)
      expected[i] = static_cast<char>(dice.Int(0, 255));
    REQUIRE((*file)->WriteAt(static_cast<int64_t>(begin), expected.substr(begin, length)).ok());
  }
  REQUIRE((*file)->Commit().ok());
  CHECK((folder.Read("model") == expected));
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
}  // namespace evenshard
