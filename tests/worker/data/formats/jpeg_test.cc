#include "worker/data/formats/jpeg.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "tests/worker/data/formats/test_jpeg.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

constexpr ImageSize kFullSize = {1 << 20, 1 << 20};  // a box that no test image covers

// A smooth picture, which compression at the best quality hardly changes.
uint8_t Pixel(int row, int column, int component) {
  return static_cast<uint8_t>(20 + 3 * row + 2 * column + 40 * component);
}

int Difference(const RgbImage& image, int row, int column, int channel, int expected) {
  return std::abs(image.pixels[(row * image.size.width + column) * 3 + channel] - expected);
}

TEST_CASE("a colour JPEG decodes to the pixels that were written") {
  const auto image = DecodeJpeg(JpegBytes(17, 23, 3, Pixel), kFullSize);
  REQUIRE(image.ok());
  REQUIRE(image->size == ImageSize{17, 23});
  REQUIRE(image->pixels.size() == 17 * 23 * 3);
  for (int row = 0; row < 17; ++row) {
    for (int column = 0; column < 23; ++column) {
      for (int channel = 0; channel < 3; ++channel) {
        CHECK(Difference(*image, row, column, channel, Pixel(row, column, channel)) <= 3);
      }
    }
  }
}

TEST_CASE("a grey JPEG decodes to three equal channels") {
  const auto image = DecodeJpeg(JpegBytes(9, 8, 1, Pixel), kFullSize);
  REQUIRE(image.ok());
  for (int row = 0; row < 9; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int channel = 0; channel < 3; ++channel) {
        CHECK(Difference(*image, row, column, channel, Pixel(row, column, 0)) <= 2);
      }
    }
  }
}

TEST_CASE("an inverted CMYK JPEG decodes to RGB") {
  const auto image = DecodeJpeg(JpegBytes(8, 8, 4,
                                          [](int, int, int component) {
                                            return component == 3 ? 102 : 250 - 50 * component;
                                          }),
                                kFullSize);
  REQUIRE(image.ok());
  for (int channel = 0; channel < 3; ++channel) {
    CHECK(Difference(*image, 4, 4, channel, (250 - 50 * channel) * 102 / 255) <= 2);
  }
}

TEST_CASE("a large JPEG is decoded no larger than needed to cover the box") {
  const std::string data = JpegBytes(160, 320, 3, [](int, int column, int) { return column / 2; });
  struct Case {
    ImageSize box, size;
  };
  const Case c = GENERATE(values<Case>({
      {{20, 40}, {20, 40}},      // 1/8
      {{21, 40}, {40, 80}},      // 2/8
      {{20, 90}, {60, 120}},     // 3/8, for the width
      {{150, 150}, {160, 320}},  // 8/8
      {{500, 500}, {160, 320}},  // never enlarged
  }));
  const auto image = DecodeJpeg(data, c.box);
  REQUIRE(image.ok());
  CHECK(image->size == c.size);
  // The pixel in the middle keeps its brightness.
  CHECK(Difference(*image, image->size.height / 2, image->size.width / 2, 1, 80) <= 3);
}

TEST_CASE("data that is no JPEG image, cut short or damaged is data loss") {
  const std::string good = JpegBytes(64, 64, 3, Pixel);
  std::string damaged = good;
  damaged.replace(damaged.size() / 2, 2, "\xFF\xD9");  // an end marker among the pixels
  const std::string no_scan = good.substr(0, 20);
  struct Case {
    std::string data, message;
  };
  const Case c = GENERATE_COPY(values<Case>({
      {"", "Empty input file"},
      {"\x89PNG\r\n", "Not a JPEG file"},
      {no_scan, "premature end"},
      {good.substr(0, good.size() / 2), "premature end"},
      {good.substr(0, good.size() - 2), "remature end"},  // only the end marker is missing
      {damaged, "Corrupt JPEG data"},
  }));
  const auto image = DecodeJpeg(c.data, kFullSize);
  CHECK(image.status().code() == absl::StatusCode::kDataLoss);
  INFO(image.status());
  CHECK_THAT(absl::AsciiStrToLower(image.status().message()),
             Contains(absl::AsciiStrToLower(c.message)));
}

TEST_CASE("stray bytes between segments do no harm") {
  std::string data = JpegBytes(8, 8, 3, Pixel);
  data.insert(2, "\x11\x22");  // behind the start marker
  const auto image = DecodeJpeg(data, kFullSize);
  REQUIRE(image.ok());
  CHECK(Difference(*image, 4, 4, 1, Pixel(4, 4, 1)) <= 3);
}

TEST_CASE("a JPEG of too many pixels is refused before memory is taken for it") {
  // Sets the size in the frame header, which begins with 0xFFC0, to 65000 x 65000.
  std::string data = JpegBytes(8, 8, 3, Pixel);
  const size_t frame = data.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  for (const size_t at : {frame + 5, frame + 7}) data.replace(at, 2, "\xFD\xE8");
  const auto image = DecodeJpeg(data, kFullSize);
  CHECK(image.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(image.status().message()), Contains("65000x65000 pixels are too many"));
}

}  // namespace
}  // namespace evenshard
