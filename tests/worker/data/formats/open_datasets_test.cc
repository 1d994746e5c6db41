#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/formats/test_files.h"
#include "tests/worker/data/formats/test_jpeg.h"
#include "worker/data/formats/dataset.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// Makes a config of 2 workers with batches of 2, and a model of `input` and 3 classes. `data`
// begins in line 6.
absl::StatusOr<PlannedConfig> MakeConfig(const std::string& input, const std::string& data,
                                         const std::string& overriding = "workers=2") {
  return PlannedConfig::Parse("model { input { " + input +
                                  " } layer { name: 'fc' linear { out_features: 3 } } }\n"
                                  "partition { scheme: MEMORY_BASED }\n"
                                  "shard { address: 'localhost:0' }\n"
                                  "update { policy: SYNC }\n"
                                  "training { batch_size: 2 epochs: 1 }\n"
                                  "data { " +
                                  data + " }\n",
                              "test.config", {overriding});
}

constexpr char k2x2[] = "channels: 1 height: 2 width: 2";
constexpr char kRgb4x4[] = "channels: 3 height: 4 width: 4";

absl::StatusOr<Datasets> Open(const std::string& input, const std::string& data) {
  const absl::StatusOr<PlannedConfig> config = MakeConfig(input, data);
  REQUIRE(config.status() == absl::OkStatus());
  return OpenDatasets(*config);
}

std::string Quoted(const std::string& path) { return "'" + path + "'"; }

// Writes `count` images of 2x2. Their first pixels count up from `first`, and their labels are 0,
// 1, 2, 0, ...
struct IdxFiles {
  IdxFiles(const TempFolder& folder, const std::string& name, int count, int first = 0) {
    std::string pixels, numbers;
    for (int i = 0; i < count; ++i) {
      pixels += std::string(1, static_cast<char>(first + i)) + "\x01\x02\x03";
      numbers += static_cast<char>(i % 3);
    }
    images = folder.Write(name + "-images", IdxBytes(kIdxImages, {uint32_t(count), 2, 2}, pixels));
    labels = folder.Write(name + "-labels", IdxBytes(kIdxLabels, {uint32_t(count)}, numbers));
  }
  std::string Source() const {
    return "idx { images: " + Quoted(images) + " labels: " + Quoted(labels) + " }";
  }
  std::string images, labels;
};

std::vector<float> ReadOne(const Dataset& dataset, int64_t index, int32_t* label,
                           const CounterRandom* random = nullptr) {
  std::vector<float> image(dataset.shape().size());
  REQUIRE(dataset.Read(index, random, absl::MakeSpan(image), label).ok());
  return image;
}

TEST_CASE("IDX data without a test set or holdout has training images only") {
  const TempFolder folder;
  const auto datasets = Open(k2x2, IdxFiles(folder, "train", 5).Source());
  REQUIRE(datasets.ok());
  CHECK(datasets->test == nullptr);
  CHECK(datasets->train->size() == 5);
  CHECK(datasets->train->shape() == Shape3{1, 2, 2});
  CHECK(datasets->train->classes() == 3);
  int32_t label = -1;
  ReadOne(*datasets->train, 4, &label);
  CHECK(label == 1);
}

TEST_CASE("a test set is normalised as the training set is") {
  const TempFolder folder;
  const IdxFiles train(folder, "train", 8), test(folder, "test", 4, 100);
  const auto datasets =
      Open(k2x2, "idx { images: " + Quoted(train.images) + " labels: " + Quoted(train.labels) +
                     " test_images: " + Quoted(test.images) +
                     " test_labels: " + Quoted(test.labels) + " }");
  REQUIRE(datasets.ok());
  REQUIRE(datasets->test != nullptr);
  CHECK(datasets->test->size() == 4);
  int32_t label = -1;
  const std::vector<float> a = ReadOne(*datasets->train, 3, &label);
  const std::vector<float> b = ReadOne(*datasets->test, 0, &label);
  // In both sets, all pixels but the first are the same in every image.
  CHECK(a[0] != b[0]);
  CHECK(std::vector<float>(a.begin() + 1, a.end()) == std::vector<float>(b.begin() + 1, b.end()));
}

TEST_CASE("a holdout keeps its images, and their statistics, out of training") {
  const TempFolder folder;
  const auto datasets = Open(k2x2, IdxFiles(folder, "train", 50).Source() + " holdout: 0.2");
  REQUIRE(datasets.ok());
  REQUIRE(datasets->test != nullptr);
  CHECK(datasets->train->size() == 40);
  CHECK(datasets->test->size() == 10);
  std::vector<float> firsts;
  double sum = 0;
  int32_t label = -1;
  for (int64_t i = 0; i < 40; ++i) {
    const std::vector<float> image = ReadOne(*datasets->train, i, &label);
    firsts.push_back(image[0]);
    for (const float value : image) sum += value;
  }
  CHECK(sum / 160 == Approx(0).margin(1e-5));
  for (int64_t i = 0; i < 10; ++i) firsts.push_back(ReadOne(*datasets->test, i, &label)[0]);
  std::sort(firsts.begin(), firsts.end());
  CHECK(std::adjacent_find(firsts.begin(), firsts.end()) == firsts.end());
}

TEST_CASE("synthetic data takes the model's shape and classes") {
  const auto datasets = Open(kRgb4x4, "synthetic { images: 20 } holdout: 0.25");
  REQUIRE(datasets.ok());
  CHECK(datasets->train->shape() == Shape3{3, 4, 4});
  CHECK(datasets->train->classes() == 3);
  CHECK(datasets->train->size() == 15);
  CHECK(datasets->test->size() == 5);
}

TEST_CASE("CIFAR-10 is opened with its test set") {
  const TempFolder folder;
  for (const std::string name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                                 "data_batch_5", "test_batch"}) {
    folder.Write(name + ".bin", std::string(3073, '\x02') + std::string(3073, '\x05'));
  }
  const absl::StatusOr<PlannedConfig> config = MakeConfig(
      "channels: 3 height: 32 width: 32", "cifar10 { path: " + Quoted(folder.path()) + " }",
      "model.layer[0].linear.out_features=10");
  REQUIRE(config.status() == absl::OkStatus());
  const auto datasets = OpenDatasets(*config);
  REQUIRE(datasets.ok());
  CHECK(datasets->train->size() == 10);
  CHECK(datasets->test->size() == 2);
  int32_t label = -1;
  const std::vector<float> image = ReadOne(*datasets->test, 1, &label);
  CHECK(label == 5);
  CHECK(image[0] == Approx(1));  // of pixels 2 and 5, in equal number
}

TEST_CASE("in-memory training images are augmented, test images are not") {
  const TempFolder folder;
  const auto datasets = Open(
      k2x2, IdxFiles(folder, "train", 30).Source() + " holdout: 0.2 augment { crop_padding: 1 }");
  REQUIRE(datasets.ok());
  int32_t label = -1;
  int changed = 0;
  for (uint64_t i = 0; i < 6; ++i) {
    const CounterRandom random(1, i);
    CHECK(ReadOne(*datasets->test, i, &label, &random) == ReadOne(*datasets->test, i, &label));
    changed +=
        ReadOne(*datasets->train, i, &label, &random) != ReadOne(*datasets->train, i, &label);
  }
  CHECK(changed > 0);
}

void WriteImages(const TempFolder& folder, const std::string& under,
                 const std::vector<std::string>& classes) {
  for (const std::string& name : classes) {
    for (const char* file : {"/1.jpg", "/2.jpg"}) {
      folder.Write(under + "/" + name + file,
                   JpegBytes(8, 8, 3, [](int row, int, int) { return 30 * row; }));
    }
  }
}

std::string FolderSource(const TempFolder& folder, const std::string& more) {
  return "image_folder { path: " + Quoted(folder.Path("train")) + more + " }";
}

TEST_CASE("an image folder is opened with its test folder, or a holdout") {
  const TempFolder folder;
  WriteImages(folder, "train", {"cat", "dog"});
  WriteImages(folder, "test", {"cat", "dog"});
  WriteImages(folder, "train", {"emu"});
  WriteImages(folder, "test", {"emu"});
  const auto pair =
      Open(kRgb4x4, FolderSource(folder, " test_path: " + Quoted(folder.Path("test"))));
  REQUIRE(pair.ok());
  CHECK(pair->train->size() == 6);
  CHECK(pair->test->size() == 6);
  CHECK(pair->train->shape() == Shape3{3, 4, 4});
  CHECK(pair->train->classes() == 3);

  const auto held =
      Open(kRgb4x4, FolderSource(folder, "") + " holdout: 0.3 augment { flip: true }");
  REQUIRE(held.ok());
  CHECK(held->train->size() == 4);
  CHECK(held->test->size() == 2);
  int32_t label = -1;
  const CounterRandom random(1, "x");
  ReadOne(*held->train, 3, &label, &random);
  CHECK(label == 2);
}

// Checks that opening fails with the line of the data, the field and the message.
void CheckRefused(const absl::StatusOr<Datasets>& datasets, const std::string& place,
                  const std::string& message) {
  CHECK(datasets.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(datasets.status().message()),
             Contains("test.config:" + place + ": ") && Contains(message));
}

TEST_CASE("bad data is refused with the config's line and field") {
  const TempFolder folder;
  const IdxFiles good(folder, "good", 8), few(folder, "few", 3);
  const auto idx = [](const std::string& images, const std::string& labels) {
    return "idx { images: " + Quoted(images) + " labels: " + Quoted(labels) + " }";
  };
  SECTION("images that are missing") {
    CheckRefused(Open(k2x2, idx(folder.Path("none"), good.labels)), "6: data.idx.images",
                 "No such file");
  }
  SECTION("labels that are images") {
    CheckRefused(Open(k2x2, idx(good.images, good.images)), "6: data.idx.labels",
                 "starts with 0x00000803");
  }
  SECTION("as many labels as there are images in another file") {
    CheckRefused(Open(k2x2, idx(good.images, few.labels)), "6: data.idx.labels",
                 "3 labels for 8 images");
  }
  SECTION("images that do not fit the model: both shapes are named") {
    CheckRefused(Open("channels: 1 height: 28 width: 28", good.Source()), "6: data.idx.images",
                 "the images are 1x2x2, but the model custom takes 1x28x28");
  }
  SECTION("a label that the model has no class for") {
    const std::string labels =
        folder.Write("labels", IdxBytes(kIdxLabels, {8}, std::string(7, '\0') + "\x03"));
    CheckRefused(Open(k2x2, idx(good.images, labels)), "6: data.idx.labels",
                 "label 3 of image 7 is outside the model's 3 classes");
  }
  SECTION("a bad test set") {
    CheckRefused(Open(k2x2, "idx { images: " + Quoted(good.images) + " labels: " +
                                Quoted(good.labels) + " test_images: " + Quoted(few.images) +
                                " test_labels: " + Quoted(good.labels) + " }"),
                 "6: data.idx.test_labels", "8 labels for 3 images");
  }
  SECTION("fewer images than one batch for each worker") {
    CheckRefused(Open(k2x2, few.Source()), "5: training.batch_size",
                 "2 worker(s) with batches of 2 need at least 4 training images, the data has 3");
  }
  SECTION("fewer images than that because of the holdout") {
    CheckRefused(Open(k2x2, good.Source() + " holdout: 0.9"), "5: training.batch_size",
                 "the data has 1");
  }
  SECTION("a folder of CIFAR-10 without its files") {
    const absl::StatusOr<PlannedConfig> config = MakeConfig(
        "channels: 3 height: 32 width: 32", "cifar10 { path: " + Quoted(folder.path()) + " }",
        "model.layer[0].linear.out_features=10");
    REQUIRE(config.status() == absl::OkStatus());
    CheckRefused(OpenDatasets(*config), "6: data.cifar10.path", "data_batch_1.bin");
  }
  SECTION("an image folder without classes") {
    CheckRefused(Open(kRgb4x4, "image_folder { path: " + Quoted(folder.path()) + " }"),
                 "6: data.image_folder.path", "has no folders");
  }
  SECTION("an image folder of more classes than the model") {
    WriteImages(folder, "train", {"a", "b", "c", "d"});
    CheckRefused(Open(kRgb4x4, FolderSource(folder, "")), "6: data.image_folder.path",
                 "has 4 class folders, but the model custom has 3 classes");
  }
  SECTION("a test folder of other classes") {
    WriteImages(folder, "train", {"a", "b"});
    WriteImages(folder, "test", {"a", "c"});
    CheckRefused(Open(kRgb4x4, FolderSource(folder, " test_path: " + Quoted(folder.Path("test")))),
                 "6: data.image_folder.test_path", "its class folders are not those of");
  }
}

TEST_CASE("data without a source cannot be opened") {
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      "model { builtin: 'mnist_mlp' } partition { scheme: MEMORY_BASED }\n"
      "shard { address: 'localhost:0' } update { policy: SYNC }\n"
      "training { iterations: 1 } compute { backend: EMULATED }",
      "test.config");
  REQUIRE(config.status() == absl::OkStatus());
  const auto datasets = OpenDatasets(*config);
  CHECK(datasets.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(datasets.status().message()), Contains("data: no data set is given"));
}

}  // namespace
}  // namespace evenshard
