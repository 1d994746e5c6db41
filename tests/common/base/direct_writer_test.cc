#include "common/base/direct_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <string>

#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

constexpr size_t kSize = size_t{3} << 20;

// A file that is open in some way, and its writer, which is null where there are no direct writes.
struct Fixture {
  explicit Fixture(int flags) : fd(open(folder.Write("file", "").c_str(), flags)) {
    REQUIRE(fd >= 0);
    auto created = DirectWriter::Create(fd);
    REQUIRE(created.ok());
    writer = *std::move(created);
  }
  ~Fixture() {
    writer.reset();
    close(fd);
  }

  const ScratchFolder folder;
  const int fd;
  std::unique_ptr<DirectWriter> writer;
};

TEST_CASE("pieces that share blocks are written, also where a neighbour never comes") {
  Fixture fixture(O_WRONLY);
  if (fixture.writer == nullptr) return;
  std::string expected(kSize, '\0');
  for (size_t i = 0; i < kSize; ++i) expected[i] = static_cast<char>(i * 2654435761U >> 24);
  // A hole from 5000 to 5100 stays.
  for (size_t i = 5000; i < 5100; ++i) expected[i] = '\0';
  const auto write = [&](size_t begin, size_t end) {
    return fixture.writer->Write(static_cast<int64_t>(begin), expected.substr(begin, end - begin));
  };
  CHECK(write(2000001, kSize) == 0);
  CHECK(write(10, 5000) == 0);
  CHECK(write(5100, 5200) == 0);
  CHECK(write(5200, 2000001) == 0);
  CHECK(write(0, 10) == 0);
  REQUIRE(fixture.writer->Finish() == 0);
  CHECK((fixture.folder.Read("file") == expected));
}

TEST_CASE("what the system refuses is said, at the latest in the end") {
  Fixture fixture(O_RDONLY);  // parts of blocks are written to it, and whole blocks are not
  if (fixture.writer == nullptr) return;
  CHECK(fixture.writer->Write(4096, std::string(4096, 'x')) == 0);
  CHECK(fixture.writer->Finish() == 0);
  CHECK(fixture.writer->Write(8292, std::string(4096, 'x')) == 0);
  CHECK(fixture.writer->Finish() == EBADF);
}

TEST_CASE("a piece after an error is refused") {
  Fixture fixture(O_RDONLY);
  if (fixture.writer == nullptr) return;
  CHECK(fixture.writer->Write(0, std::string(100, 'x')) == 0);
  CHECK(fixture.writer->Write(100, std::string(4096 - 100, 'x')) == 0);  // the block is whole
  CHECK(fixture.writer->Finish() == EBADF);
  CHECK(fixture.writer->Write(8192, std::string(4096, 'x')) == EBADF);
}

}  // namespace
}  // namespace evenshard
