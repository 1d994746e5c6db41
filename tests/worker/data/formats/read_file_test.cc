#include "worker/data/formats/read_file.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "tests/worker/data/formats/test_files.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// Makes a text that is longer than one block of reading and does not compress to almost nothing.
std::string LongText() {
  std::string text;
  for (int i = 0; text.size() < 700000; ++i) text += std::to_string(i * 7919) + "\n";
  return text;
}

TEST_CASE("a file reads back whole, plain or gzip-compressed") {
  const TempFolder folder;
  const std::string text = GENERATE(std::string(), std::string("abc\0def", 7), LongText());
  CHECK(ReadFile(folder.Write("plain", text)).value() == text);
  CHECK(ReadFile(folder.WriteGzip("packed.gz", text)).value() == text);
}

TEST_CASE("a missing file is not found, by name") {
  const TempFolder folder;
  const auto content = ReadFile(folder.Path("missing"));
  CHECK(content.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(content.status().message()), Contains(folder.Path("missing")));
}

TEST_CASE("a folder in place of a file is an error that names it") {
  const TempFolder folder;
  const auto content = ReadFile(folder.path());
  REQUIRE_FALSE(content.ok());
  CHECK_THAT(std::string(content.status().message()), Contains(folder.path()));
}

TEST_CASE("a gzip file that ends early or is damaged is data loss") {
  const TempFolder folder;
  folder.WriteGzip("good.gz", LongText());
  std::string packed;
  {
    std::FILE* file = std::fopen(folder.Path("good.gz").c_str(), "rb");
    REQUIRE(file != nullptr);
    char block[4096];
    for (size_t got; (got = std::fread(block, 1, sizeof(block), file)) > 0;) {
      packed.append(block, got);
    }
    std::fclose(file);
  }
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // in the checksum
  const std::string bytes = GENERATE_COPY(packed.substr(0, packed.size() / 2), damaged);
  const std::string path = folder.Write("bad.gz", bytes);
  const auto content = ReadFile(path);
  CHECK(content.status().code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(content.status().message()), Contains(path));
}

}  // namespace
}  // namespace evenshard
