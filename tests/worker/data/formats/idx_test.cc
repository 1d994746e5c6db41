#include "worker/data/formats/idx.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/worker/data/formats/test_files.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// Makes 2 images of 2 rows and 3 columns.
std::string GoodImages() {
  return IdxBytes(kIdxImages, {2, 2, 3},
                  std::string("\x00\x01\x02\x03\x04\xff\x06\x07\x08\x09\x0a\x0b", 12));
}

TEST_CASE("IDX images are read plain or compressed, in order") {
  const TempFolder folder;
  const bool packed = GENERATE(false, true);
  const std::string path =
      packed ? folder.WriteGzip("packed.gz", GoodImages()) : folder.Write("plain", GoodImages());
  const auto images = ReadIdxImages(path);
  REQUIRE(images.ok());
  CHECK(images->shape == Shape3{1, 2, 3});
  CHECK(images->size() == 2);
  CHECK(images->pixels == std::vector<uint8_t>{0, 1, 2, 3, 4, 255, 6, 7, 8, 9, 10, 11});
}

TEST_CASE("IDX labels are read in order") {
  const TempFolder folder;
  const auto labels = ReadIdxLabels(
      folder.Write("labels", IdxBytes(kIdxLabels, {3}, std::string("\x02\x00\x09", 3))), 3, 10);
  REQUIRE(labels.ok());
  CHECK(*labels == std::vector<uint8_t>{2, 0, 9});
}

TEST_CASE("bad IDX images are refused with the file's name and the reason") {
  struct Case {
    std::string bytes, message;
  };
  const std::string good = GoodImages();
  const Case c = GENERATE_COPY(values<Case>({
      {"", "0 bytes are shorter than the header of 16"},
      {good.substr(0, 15), "15 bytes are shorter than the header of 16"},
      {good.substr(0, good.size() - 1), "truncated, 11 bytes follow the header"},
      {good + "x", "trailing bytes, 13 bytes follow the header, whose dimensions 2x2x3 ask for 12"},
      {"\x89PNG and sixteen more bytes", "starts with 0x89504E47 instead of 0x00000803"},
      {IdxBytes(kIdxLabels, {12}, std::string(12, 'x')), "starts with 0x00000801"},
      {IdxBytes(0x00000D03, {1, 1, 1}, "1234"), "starts with 0x00000D03"},
      {IdxBytes(kIdxImages, {0, 2, 3}, ""), "dimension 1 of its header is 0, allowed is 1 to"},
      {IdxBytes(kIdxImages, {1, 40000, 1}, ""), "dimension 2 of its header is 40000"},
      // The largest sizes cause neither an overflow nor an allocation.
      {IdxBytes(kIdxImages, {0xFFFFFFFF, 32768, 32768}, "x"), "truncated, 1 bytes follow"},
  }));
  const TempFolder folder;
  const std::string path = folder.Write("images", c.bytes);
  const auto images = ReadIdxImages(path);
  REQUIRE_FALSE(images.ok());
  CHECK_THAT(std::string(images.status().message()), Contains(path) && Contains(c.message));
}

TEST_CASE("bad IDX labels are refused with the file's name and the reason") {
  struct Case {
    std::string bytes, message;
  };
  const Case c = GENERATE(values<Case>({
      {IdxBytes(kIdxLabels, {2}, "\x01\x02"), "2 labels for 3 images"},
      {IdxBytes(kIdxLabels, {3}, "\x01\x02\x0a"),
       "label 10 of image 2 is outside the model's 10 classes (0 to 9)"},
      {IdxBytes(kIdxLabels, {3}, "\x01\x02"), "truncated"},
      {GoodImages(), "starts with 0x00000803 instead of 0x00000801"},
  }));
  const TempFolder folder;
  const std::string path = folder.Write("labels", c.bytes);
  const auto labels = ReadIdxLabels(path, 3, 10);
  REQUIRE_FALSE(labels.ok());
  CHECK_THAT(std::string(labels.status().message()), Contains(path) && Contains(c.message));
}

TEST_CASE("a missing IDX file is not found") {
  const TempFolder folder;
  CHECK(ReadIdxImages(folder.Path("x")).status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadIdxLabels(folder.Path("x"), 1, 1).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace evenshard
