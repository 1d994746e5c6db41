#include "common/checkpoint/storage/real_storage.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <string>

#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

std::string ReadAll(Storage* storage, const std::string& path) {
  auto contents = ReadWholeFile(storage, path, 1000);
  INFO(contents.status().message());
  REQUIRE(contents.ok());
  return *contents;
}

TEST_CASE("a file system that is away is no verdict about what is in it") {
  for (const int error : {EBUSY, ENOTCONN, ESHUTDOWN}) {
    const absl::Status status = StorageError(error, "cannot read");
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(std::string(status.message()), Catch::StartsWith("cannot read: "));
  }
  CHECK(absl::IsNotFound(StorageError(ENOENT, "")));
  CHECK(absl::IsFailedPrecondition(StorageError(ENOTDIR, "")));
}

TEST_CASE("a file is read back, in whole and in part") {
  RealStorage storage;
  const ScratchFolder folder;
  const std::string path = folder.Path("f");
  REQUIRE(WriteWholeFile(&storage, path, "hello").ok());
  CHECK(ReadAll(&storage, path) == "hello");
  const auto file = storage.OpenFile(path);
  REQUIRE(file.ok());
  CHECK((*file)->size() == 5);
  std::string part(3, '\0');
  REQUIRE((*file)->ReadAt(1, absl::MakeSpan(part.data(), part.size())).ok());
  CHECK(part == "ell");
  const absl::Status beyond = (*file)->ReadAt(3, absl::MakeSpan(part.data(), part.size()));
  CHECK(absl::IsDataLoss(beyond));
  CHECK(beyond.message() == path + " ends at byte 5, where more was expected");
  CHECK(ReadWholeFile(&storage, path, 4).status().message() ==
        path + " has 5 bytes, allowed: at most 4");
}

TEST_CASE("a file that was not committed leaves nothing") {
  RealStorage storage;
  const ScratchFolder folder;
  {
    auto file = storage.CreateFile(folder.Path("f"), 100);
    REQUIRE(file.ok());
    REQUIRE((*file)->WriteAt(0, "x").ok());
  }
  CHECK(folder.Files().empty());
}

TEST_CASE("folders are made with those above them, listed, and removed when empty") {
  RealStorage storage;
  const ScratchFolder folder;
  const std::string path = folder.Path("a/b/c");
  REQUIRE(storage.MakeFolder(path).ok());
  REQUIRE(storage.MakeFolder(path).ok());
  REQUIRE(storage.MakeFolder(folder.Path("a/b/d/")).ok());
  REQUIRE(WriteWholeFile(&storage, path + "/2", "").ok());
  REQUIRE(WriteWholeFile(&storage, path + "/1", "").ok());
  CHECK(*storage.ListFolder(path) == std::vector<std::string>{"1", "2"});
  CHECK(*storage.ListFolder(folder.Path("a/b")) == std::vector<std::string>{"c", "d"});
  const absl::Status full = storage.RemoveFolder(path);
  CHECK(absl::IsFailedPrecondition(full));
  CHECK(full.message() == "cannot remove the folder " + path + ": it is not empty");
  REQUIRE(storage.RemoveFile(path + "/1").ok());
  REQUIRE(storage.RemoveFile(path + "/2").ok());
  REQUIRE(storage.RemoveFile(path + "/2").ok());
  REQUIRE(storage.RemoveFolder(path).ok());
  REQUIRE(storage.RemoveFolder(path).ok());
  CHECK(absl::IsNotFound(storage.ListFolder(path).status()));
}

TEST_CASE("errors say what could not be done, where and why") {
  RealStorage storage;
  const ScratchFolder folder;
  folder.Write("file", "x");
  const auto message = [](const absl::Status& status) {
    CHECK_FALSE(status.ok());
    return std::string(status.message());
  };
  const std::string none = folder.Path("none");
  CHECK(message(storage.OpenFile(none).status()) ==
        "cannot read " + none + ": No such file or directory");
  CHECK(message(storage.CreateFile(none + "/f", 0).status()) ==
        "cannot write " + none + "/f: No such file or directory");
  CHECK(message(storage.OpenFile(folder.Path("")).status()) ==
        "cannot read " + folder.Path("") + ": it is not a regular file");
  CHECK(message(storage.MakeFolder(folder.Path("file/x"))) ==
        "cannot make the folder " + folder.Path("file") + ": File exists");
  // Nobody can write here, not even root.
  CHECK_FALSE(storage.MakeFolder("/proc/evenshard").ok());
  CHECK_FALSE(storage.LockFile("/proc/evenshard", "me").ok());
}

TEST_CASE("a named pipe is refused, not waited for") {
  RealStorage storage;
  const ScratchFolder folder;
  REQUIRE(mkfifo(folder.Path("pipe").c_str(), 0600) == 0);
  CHECK(absl::IsInvalidArgument(storage.OpenFile(folder.Path("pipe")).status()));
}

TEST_CASE("nothing is written through a symbolic link, and no folder behind one is listed") {
  RealStorage storage;
  const ScratchFolder folder;
  const ScratchFolder others;
  const std::string victim = others.Write("victim", "precious");
  std::filesystem::create_symlink(victim, folder.Path("link"));
  const absl::Status written = WriteWholeFile(&storage, folder.Path("link"), "x");
  CHECK(absl::IsFailedPrecondition(written));
  CHECK(written.message() ==
        "cannot write " + folder.Path("link") + ": it is a symbolic link, allowed: a file");
  const auto lock = storage.LockFile(folder.Path("link"), "me");
  CHECK_FALSE(lock.ok());
  CHECK(others.Read("victim") == "precious");
  std::filesystem::create_directory_symlink(others.Path(""), folder.Path("elsewhere"));
  CHECK(*storage.ListFolder(folder.Path("")) == std::vector<std::string>{"link"});
  REQUIRE(storage.RemoveFile(folder.Path("link")).ok());
  CHECK(others.Read("victim") == "precious");
  // What is read may be a link, and so may the folder itself.
  CHECK(ReadAll(&storage, folder.Path("elsewhere/victim")) == "precious");
  CHECK(*storage.ListFolder(folder.Path("elsewhere")) == std::vector<std::string>{"victim"});
}

TEST_CASE("a lock excludes every other, names its owner, and ends with its object") {
  RealStorage storage;
  const ScratchFolder folder;
  const std::string path = folder.Path("LOCK");
  folder.Write("LOCK", "an earlier owner with a long name");
  auto lock = storage.LockFile(path, "me");
  REQUIRE(lock.ok());
  const absl::Status second = storage.LockFile(path, "you").status();
  CHECK(absl::IsAborted(second));
  CHECK(second.message() == path + " is locked by me");
  lock->reset();
  CHECK(storage.LockFile(path, "you").ok());
  CHECK(folder.Read("LOCK") == "you");
}

}  // namespace
}  // namespace evenshard
