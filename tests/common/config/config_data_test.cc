// What a config says about data and evaluation, and whether the model fits it.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {

TEST_CASE("data is required unless the backend is emulated") {
  const std::string no_data = std::string(kConfig).substr(0, std::string(kConfig).find("data {"));
  CHECK(ErrorOf(no_data) ==
        "f:1: data: its source is missing, allowed: idx, cifar10, image_folder or synthetic; none "
        "with compute.backend EMULATED");
  const PlannedConfig config =
      Valid(no_data, {"compute.backend=EMULATED", "training.iterations=5"});
  CHECK(!config.proto().has_data());
}

TEST_CASE("paths of the data are required, in pairs where they come in pairs") {
  CHECK(ErrorWith("images: \"digits/images\"", "") ==
        "f:14: data.idx.images: is missing, allowed: a path, relative to this file");
  CHECK(ErrorWith("labels: \"/abs/labels\"", "labels: \"\"") ==
        "f:14: data.idx.labels: is missing, allowed: a path, relative to this file");
  CHECK(ErrorOf(kConfig, {"data.idx.test_images=x", "data.holdout=0"}) ==
        "f:14: data.idx.test_labels: is missing, allowed: a path, relative to this file");
  CHECK(ErrorOfOverride("data.idx={}") ==
        "data.idx.images: is missing, allowed: a path, relative to this file\n"
        "--set data.idx={}: data.idx.labels: is missing, allowed: a path, relative to this file");
  CHECK(absl::StartsWith(ErrorOfOverride("data.cifar10={}"), "data.cifar10.path: is missing"));
  CHECK(absl::StartsWith(ErrorOfOverride("data.image_folder={test_path: ''}"),
                         "data.image_folder.path: is missing, allowed: a path, relative to this "
                         "file\n--set data.image_folder={test_path: ''}: "
                         "data.image_folder.test_path: is missing"));
}

TEST_CASE("an accuracy is required or evaluated only where there is something to evaluate on") {
  const std::string no_holdout = absl::StrReplaceAll(kConfig, {{"holdout: 0.2", ""}});
  constexpr char kNothing[] =
      ", but there is nothing to evaluate on, allowed: only with data.holdout or a test set, and "
      "not with backend EMULATED";
  CHECK(ErrorOf(no_holdout, {"training.required_accuracy=0.5"}) ==
        absl::StrCat("--set training.required_accuracy=0.5: training.required_accuracy: is 0.5",
                     kNothing));
  CHECK(ErrorOf(no_holdout, {"training.evaluate_every_epochs=2"}) ==
        absl::StrCat("--set training.evaluate_every_epochs=2: training.evaluate_every_epochs: is 2",
                     kNothing));
  Valid(kConfig, {"training.required_accuracy=0.5", "training.evaluate_every_epochs=2"});
  Valid(no_holdout,
        {"training.required_accuracy=0.5", "data.idx.test_images=a", "data.idx.test_labels=b"});
  CHECK(ErrorOf(kConfig, {"data.idx.test_images=a", "data.idx.test_labels=b"}) ==
        "--set data.idx.test_images=a: data.holdout: is 0.2, but the data has a test set, "
        "allowed: 0");
}

TEST_CASE("data whose images or classes do not fit the model are refused") {
  CHECK(ErrorOfOverride("data.cifar10={path: 'x'}") ==
        "data.holdout: is 0.2, but the data has a test set, allowed: 0\n"
        "--set data.cifar10={path: 'x'}: data.cifar10: its images are 3x32x32, but the input of "
        "the model custom is 1x8x8, allowed: a model with such an input");
  CHECK(ErrorOf(kConfig,
                {"data={cifar10 {path: 'x'}}", "model.input={channels: 3 height: 32 width: 32}",
                 "model.layer[2].linear.out_features=9"}) ==
        "--set data={cifar10 {path: 'x'}}: data.cifar10: has 10 classes, but the model custom has "
        "9, allowed: a model with at least as many");
  CHECK(ErrorOfOverride("model={builtin: 'alexnet'}") ==
        "data.idx: its images are of one channel, but the input of the model alexnet is 3x224x224, "
        "allowed: a model with such an input");
  CHECK(ErrorOfOverride("data.image_folder={path: 'x'}") ==
        "data.image_folder: its images are of three channels, but the input of the model custom is "
        "1x8x8, allowed: a model with such an input");
  CHECK(ErrorOf(kConfig,
                {"model={builtin: 'alexnet'}", "data={image_folder {path: 'x' resize: 223}}"}) ==
        "--set data={image_folder {path: 'x' resize: 223}}: data.image_folder.resize: is 223, "
        "allowed: 224 to 65500");
  CHECK(ErrorOfOverride("data.synthetic={shape {channels: 1 height: 8 width: 9}}") ==
        "data.synthetic.shape: its images are 1x8x9, but the input of the model custom is 1x8x8, "
        "allowed: a model with such an input");
  CHECK(ErrorOfOverride("data.synthetic={classes: 11}") ==
        "data.synthetic.classes: is 11, allowed: 1 to the 10 classes of the model custom");
  CHECK(ErrorOfOverride("data.synthetic={classes: 0}") ==
        "data.synthetic.classes: is 0, allowed: 1 to the 10 classes of the model custom");
  CHECK(ErrorOfOverride("data.synthetic={images: 7}") ==
        "data.synthetic.images: is 7, allowed: at least one batch for each worker, 8");
  CHECK(ErrorOfOverride("data.synthetic={noise: nan}") ==
        "data.synthetic.noise: is nan, allowed: a number of at least 0");
}

TEST_CASE("a batch too small for the model's batch normalisation is refused") {
  const std::string text = R"(
    model {
      input { channels: 1 height: 3 width: 3 }
      layer { name: "c" conv { out_channels: 4 kernel: 3 } }
      layer { name: "n" batch_norm {} }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "a:1" }
    update { policy: SYNC }
    training { iterations: 3 batch_size: )";
  const std::string rest = " } data { synthetic {} }";
  CHECK(ErrorOf(text + "1" + rest) ==
        "f:10: training.batch_size: is 1, but the batch normalisation n of the model custom, whose "
        "input is 4x1x1, needs several values per channel, allowed: at least 2");
  Valid(text + "2" + rest);
}

}  // namespace evenshard
