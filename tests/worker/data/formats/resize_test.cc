#include "worker/data/formats/resize.h"

#include <catch2/catch.hpp>
#include <vector>

namespace evenshard {
namespace {

// Makes an image whose red is the column, green the row and blue their sum, each times 10.
RgbImage Ramp(int64_t height, int64_t width) {
  RgbImage image;
  image.size = {height, width};
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      for (const int64_t value : {column, row, row + column}) {
        image.pixels.push_back(static_cast<uint8_t>(10 * value));
      }
    }
  }
  return image;
}

std::vector<float> Cut(const RgbImage& image, const Crop& crop) {
  std::vector<float> out(3 * crop.size.height * crop.size.width, -1);
  ResizeAndCrop(image, crop, absl::MakeSpan(out));
  return out;
}

TEST_CASE("an image is resized to cover the box with its aspect ratio kept") {
  struct Case {
    ImageSize image, box, covering;
  };
  const Case c = GENERATE(values<Case>({
      {{500, 375}, {256, 256}, {341, 256}},  // the shorter side gets the box's length
      {{375, 500}, {256, 256}, {256, 341}},
      {{256, 256}, {256, 256}, {256, 256}},
      {{10, 20}, {256, 256}, {256, 512}},     // enlarged
      {{1000, 1000}, {64, 128}, {128, 128}},  // a box that is not square is covered too
      {{1000, 100}, {64, 128}, {1280, 128}},
      {{3, 65535}, {256, 256}, {256, 5592320}},
      {{333, 334}, {1, 1}, {1, 1}},
  }));
  CHECK(CoveringSize(c.image, c.box) == c.covering);
}

TEST_CASE("cropping without resizing copies the pixels") {
  const std::vector<float> out =
      Cut(Ramp(4, 5), {.resized = {4, 5}, .top = 1, .left = 2, .size = {2, 3}});
  CHECK(out == std::vector<float>{20, 30, 40, 20, 30, 40,    // red: columns 2 to 4
                                  10, 10, 10, 20, 20, 20,    // green: rows 1 and 2
                                  30, 40, 50, 40, 50, 60});  // blue: the sum
}

TEST_CASE("a flip mirrors what was cut out") {
  const std::vector<float> out =
      Cut(Ramp(4, 5), {.resized = {4, 5}, .top = 1, .left = 2, .size = {1, 3}, .flip = true});
  CHECK(out == std::vector<float>{40, 30, 20, 10, 10, 10, 50, 40, 30});
}

TEST_CASE("enlarging interpolates between pixel centres and continues the border") {
  const std::vector<float> out = Cut(Ramp(1, 2), {.resized = {2, 4}, .size = {2, 4}});
  const std::vector<float> red(out.begin(), out.begin() + 8);
  CHECK(red == std::vector<float>{0, 2.5f, 7.5f, 10, 0, 2.5f, 7.5f, 10});
}

TEST_CASE("halving takes the mean of each two by two pixels") {
  const std::vector<float> out = Cut(Ramp(4, 4), {.resized = {2, 2}, .size = {2, 2}});
  CHECK(out == std::vector<float>{5, 25, 5, 25, 5, 5, 25, 25, 10, 30, 30, 50});
}

TEST_CASE("a crop of a resized image is that part of the whole") {
  const RgbImage image = Ramp(7, 9);
  const ImageSize resized = {13, 11};
  const std::vector<float> whole = Cut(image, {.resized = resized, .size = resized});
  const std::vector<float> part =
      Cut(image, {.resized = resized, .top = 4, .left = 3, .size = {5, 6}});
  for (int64_t channel = 0; channel < 3; ++channel) {
    for (int64_t y = 0; y < 5; ++y) {
      for (int64_t x = 0; x < 6; ++x) {
        CHECK(part[(channel * 5 + y) * 6 + x] == whole[(channel * 13 + y + 4) * 11 + x + 3]);
      }
    }
  }
}

}  // namespace
}  // namespace evenshard
