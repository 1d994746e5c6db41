#include "worker/data/formats/image_folder.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "tests/worker/data/formats/test_files.h"
#include "tests/worker/data/formats/test_jpeg.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

std::string Uniform(int height, int width, uint8_t red) {
  return JpegBytes(height, width, 3,
                   [red](int, int, int channel) { return channel == 0 ? red : 100; });
}

// Returns the normalised value of a pixel value of 0 to 255.
float Normalised(float value, int channel) {
  constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};
  return (value / 255 - kMean[channel]) / kDeviation[channel];
}

struct Reading {
  absl::Status status;
  std::vector<float> image;
  int32_t label = -1;
};

Reading ReadOne(const ImageFolder& folder, int64_t index, const CounterRandom* random = nullptr) {
  Reading reading;
  reading.image.resize(folder.shape().size());
  reading.status = folder.Read(index, random, absl::MakeSpan(reading.image), &reading.label);
  return reading;
}

TEST_CASE("a folder's classes and images are numbered in the order of their names") {
  const TempFolder folder;
  folder.Write("dog/b.JPEG", Uniform(8, 8, 20));
  folder.Write("dog/a.jpg", Uniform(8, 8, 10));
  folder.Write("cat/z.jpeg", Uniform(8, 8, 200));
  // These are ignored:
  folder.Write("cat/readme.txt", "not an image");
  folder.Write("cat/jpg", "not an image");
  folder.Write(".cache/x.jpg", "not an image");
  folder.Write("list.jpg", "beside the classes");
  const auto images = ImageFolder::Open(folder.path(), {.crop = {4, 6}, .resize = 8});
  REQUIRE(images.ok());
  CHECK((*images)->class_names() == std::vector<std::string>{"cat", "dog"});
  CHECK((*images)->classes() == 2);
  CHECK((*images)->shape() == Shape3{3, 4, 6});
  REQUIRE((*images)->size() == 3);
  const std::vector<std::pair<int, float>> expected = {{0, 200}, {1, 10}, {1, 20}};
  for (int i = 0; i < 3; ++i) {
    const Reading reading = ReadOne(**images, i);
    REQUIRE(reading.status.ok());
    CHECK(reading.label == expected[i].first);
    CHECK(reading.image[0] == Approx(Normalised(expected[i].second, 0)).margin(0.06));
    CHECK(reading.image[24] == Approx(Normalised(100, 1)).margin(0.06));
    CHECK(reading.image[71] == Approx(Normalised(100, 2)).margin(0.06));
  }
}

// Writes an image of 16 x 32 pixels whose red is 8 times the column.
void WriteRamp(const TempFolder& folder) {
  folder.Write("a/ramp.jpg", JpegBytes(16, 32, 3, [](int, int column, int channel) {
                 return channel == 0 ? 8 * column : 128;
               }));
}

// Returns the ramp's column that the first pixel shows.
float FirstColumn(const Reading& reading) { return (reading.image[0] * 0.229f + 0.485f) * 255 / 8; }

TEST_CASE("evaluation crops in the centre") {
  const TempFolder folder;
  WriteRamp(folder);
  const auto images = ImageFolder::Open(
      folder.path(), {.crop = {8, 8}, .resize = 16, .flip = true, .random_crop = true});
  REQUIRE(images.ok());
  const Reading reading = ReadOne(**images, 0);
  REQUIRE(reading.status.ok());
  CHECK(FirstColumn(reading) == Approx(12).margin(0.5));  // (32 - 8) / 2
  CHECK(reading.image[7] > reading.image[0]);
}

TEST_CASE("the shorter side is resized") {
  const TempFolder folder;
  WriteRamp(folder);
  const auto images = ImageFolder::Open(folder.path(), {.crop = {8, 8}, .resize = 8});
  REQUIRE(images.ok());
  const Reading reading = ReadOne(**images, 0);
  REQUIRE(reading.status.ok());
  // The resized image is 8 x 16 and is cropped from column 4 on. That column covers columns 8 and 9
  // of the ramp.
  CHECK(FirstColumn(reading) == Approx(8.5).margin(0.5));
}

TEST_CASE("augmentation crops everywhere, flips, and follows from its random numbers") {
  const TempFolder folder;
  WriteRamp(folder);
  const auto images = ImageFolder::Open(
      folder.path(), {.crop = {8, 8}, .resize = 16, .flip = true, .random_crop = true});
  REQUIRE(images.ok());
  std::set<int> columns;
  int flipped = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    const CounterRandom random(1, i);
    const Reading reading = ReadOne(**images, 0, &random);
    REQUIRE(reading.status.ok());
    CHECK(ReadOne(**images, 0, &random).image == reading.image);
    const bool mirrored = reading.image[7] < reading.image[0];
    flipped += mirrored;
    columns.insert(std::lround(FirstColumn(reading)) - (mirrored ? 7 : 0));
  }
  CHECK(columns.size() == 25);
  CHECK(*columns.begin() == 0);
  CHECK(*columns.rbegin() == 24);
  CHECK(flipped > 100);
  CHECK(flipped < 200);
}

TEST_CASE("without a random crop augmentation stays in the centre") {
  const TempFolder folder;
  WriteRamp(folder);
  const auto images = ImageFolder::Open(folder.path(), {.crop = {8, 8}, .resize = 16});
  REQUIRE(images.ok());
  for (uint64_t i = 0; i < 10; ++i) {
    const CounterRandom random(1, i);
    CHECK(FirstColumn(ReadOne(**images, 0, &random)) == Approx(12).margin(0.5));
  }
}

TEST_CASE("a folder that cannot be used is refused by name") {
  const TempFolder folder;
  std::filesystem::create_directories(folder.Path("empty"));
  folder.Write("files/a.jpg", "no class folder");
  folder.Write("gap/cat/a.jpg", Uniform(8, 8, 1));
  folder.Write("gap/dog/a.png", "not a JPEG");
  struct Case {
    std::string name, at, message;
  };
  const Case c = GENERATE(values<Case>({
      {"missing", "missing", "No such file"},
      {"empty", "empty", "has no folders"},
      {"files", "files", "has no folders"},
      {"files/a.jpg", "files/a.jpg", "Not a directory"},
      {"gap", "gap/dog", "has no JPEG image"},
  }));
  const auto images = ImageFolder::Open(folder.Path(c.name), {.crop = {4, 4}, .resize = 4});
  REQUIRE_FALSE(images.ok());
  CHECK_THAT(std::string(images.status().message()),
             Contains(folder.Path(c.at)) && Contains(c.message));
}

TEST_CASE("an image that cannot be read is named, and the others stay readable") {
  const TempFolder folder;
  const std::string good = Uniform(64, 64, 50);
  folder.Write("a/1.jpg", good.substr(0, good.size() / 2));
  folder.Write("a/2.jpg", "not a JPEG at all");
  folder.Write("a/3.jpg", good);
  folder.Write("a/4.jpg", good);
  const auto images = ImageFolder::Open(folder.path(), {.crop = {4, 4}, .resize = 4});
  REQUIRE(images.ok());
  std::filesystem::remove(folder.Path("a/4.jpg"));
  const std::vector<std::pair<std::string, absl::StatusCode>> expected = {
      {"a/1.jpg", absl::StatusCode::kDataLoss},
      {"a/2.jpg", absl::StatusCode::kDataLoss},
      {"", absl::StatusCode::kOk},
      {"a/4.jpg", absl::StatusCode::kNotFound}};
  for (int i = 0; i < 4; ++i) {
    const Reading reading = ReadOne(**images, i);
    CHECK(reading.status.code() == expected[i].second);
    CHECK_THAT(std::string(reading.status.message()), Contains(expected[i].first));
  }
}

}  // namespace
}  // namespace evenshard
