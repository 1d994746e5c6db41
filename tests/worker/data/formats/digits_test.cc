// Compares the data set that comes with the repository with figures of its source.

#include <array>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "worker/data/formats/dataset.h"
#include "worker/data/formats/idx.h"

namespace evenshard {
namespace {

constexpr char kImages[] = "data/digits/images.idx3-ubyte.gz";
constexpr char kLabels[] = "data/digits/labels.idx1-ubyte.gz";

TEST_CASE("the digits are 1797 images of 8x8 with pixels of 0 to 16") {
  const auto images = ReadIdxImages(kImages);
  REQUIRE(images.status() == absl::OkStatus());
  CHECK(images->size() == 1797);
  CHECK(images->shape == Shape3{1, 8, 8});
  const std::set<int> values(images->pixels.begin(), images->pixels.end());
  CHECK(*values.begin() == 0);
  CHECK(*values.rbegin() == 16);
  int64_t sum = 0;
  for (const uint8_t pixel : images->pixels) sum += pixel;
  CHECK(sum == 561718);
}

TEST_CASE("the digits are those of the source, in its order") {
  const auto images = ReadIdxImages(kImages);
  REQUIRE(images.status() == absl::OkStatus());
  // These are the first and the last line of the source's CSV file.
  const std::vector<uint8_t> first = {0, 0, 5,  13, 9,  1,  0, 0, 0, 0, 13, 15, 10, 15, 5, 0,
                                      0, 3, 15, 2,  0,  11, 8, 0, 0, 4, 12, 0,  0,  8,  8, 0,
                                      0, 5, 8,  0,  0,  9,  8, 0, 0, 4, 11, 0,  1,  12, 7, 0,
                                      0, 2, 14, 5,  10, 12, 0, 0, 0, 0, 6,  13, 10, 0,  0, 0};
  const std::vector<uint8_t> last = {0, 0, 10, 14, 8,  1,  0, 0, 0, 2, 16, 14, 6,  1,  0, 0,
                                     0, 0, 15, 15, 8,  15, 0, 0, 0, 0, 5,  16, 16, 10, 0, 0,
                                     0, 0, 12, 15, 15, 12, 0, 0, 0, 4, 16, 6,  4,  16, 6, 0,
                                     0, 8, 16, 10, 8,  16, 8, 0, 0, 1, 8,  12, 14, 12, 1, 0};
  CHECK(std::vector<uint8_t>(images->pixels.begin(), images->pixels.begin() + 64) == first);
  CHECK(std::vector<uint8_t>(images->pixels.end() - 64, images->pixels.end()) == last);
}

TEST_CASE("the digits have the published number of images of each class") {
  const auto labels = ReadIdxLabels(kLabels, 1797, 10);
  REQUIRE(labels.status() == absl::OkStatus());
  std::array<int, 10> counts{};
  for (const uint8_t label : *labels) ++counts[label];
  CHECK(counts == std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180});
  CHECK(labels->front() == 0);
  CHECK(labels->back() == 8);
}

TEST_CASE("the digits open with a fifth held out") {
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      "model { input { channels: 1 height: 8 width: 8 }\n"
      "        layer { name: 'fc' linear { out_features: 10 } } }\n"
      "partition { scheme: MEMORY_BASED } shard { address: 'localhost:0' } workers: 4\n"
      "update { policy: SYNC } training { epochs: 1 }\n"
      "data { idx { images: 'data/digits/images.idx3-ubyte.gz'\n"
      "             labels: 'data/digits/labels.idx1-ubyte.gz' } holdout: 0.2 }",
      "test.config");
  REQUIRE(config.status() == absl::OkStatus());
  const auto datasets = OpenDatasets(*config);
  REQUIRE(datasets.status() == absl::OkStatus());
  CHECK(datasets->train->size() == 1438);
  CHECK(datasets->test->size() == 359);
  CHECK(datasets->train->shape() == Shape3{1, 8, 8});
  CHECK(datasets->train->classes() == 10);
}

}  // namespace
}  // namespace evenshard
