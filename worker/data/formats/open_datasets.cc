#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/augment.h"
#include "worker/data/formats/cifar10.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/formats/idx.h"
#include "worker/data/formats/image_folder.h"
#include "worker/data/formats/in_memory.h"
#include "worker/data/formats/subset.h"
#include "worker/data/formats/synthetic.h"

namespace evenshard {
namespace {

// Trains on the images of `all` that `split` does not hold out.
Datasets Divide(std::shared_ptr<const Dataset> all, Split split) {
  Datasets result;
  if (!split.test.empty()) {
    result.test = std::make_unique<SubsetDataset>(all, std::move(split.test));
  }
  result.train = std::make_unique<SubsetDataset>(std::move(all), std::move(split.train));
  return result;
}

Split SplitOf(const PlannedConfig& config, int64_t size) {
  return HoldOut(size, config.proto().data().holdout(), config.proto().training().seed());
}

// `test` is null if there is no test set. Both sets are normalised with the statistics of the
// images that are trained on, without held-out ones.
Datasets InMemory(const PlannedConfig& config, ByteImages train, std::unique_ptr<ByteImages> test,
                  int64_t classes) {
  Split split = SplitOf(config, train.size());
  const Normalization normalization = NormalizationOf(train, split.train);
  Datasets result =
      Divide(std::make_shared<InMemoryDataset>(std::move(train), normalization, classes),
             std::move(split));
  if (test != nullptr) {
    result.test = std::make_unique<InMemoryDataset>(std::move(*test), normalization, classes);
  }
  return result;
}

// `prefix` is "data.idx." or "data.idx.test_".
absl::StatusOr<ByteImages> OpenIdxPair(const PlannedConfig& config, absl::string_view prefix,
                                       const std::string& images_path,
                                       const std::string& labels_path) {
  const std::string images_field = absl::StrCat(prefix, "images");
  absl::StatusOr<ByteImages> images = ReadIdxImages(images_path);
  if (!images.ok()) return config.FieldError(images_field, images.status().message());
  const Model& model = config.model();
  if (images->shape != model.input()) {
    return config.FieldError(
        images_field,
        absl::StrFormat("%s: the images are %s, but the model %s takes %s", images_path,
                        images->shape.ToString(), model.name(), model.input().ToString()));
  }
  absl::StatusOr<std::vector<uint8_t>> labels =
      ReadIdxLabels(labels_path, images->size(), model.classes());
  if (!labels.ok()) {
    return config.FieldError(absl::StrCat(prefix, "labels"), labels.status().message());
  }
  images->labels = *std::move(labels);
  return images;
}

absl::StatusOr<Datasets> OpenIdx(const PlannedConfig& config) {
  const Data::Idx& idx = config.proto().data().idx();
  ASSIGN_OR_RETURN(ByteImages train, OpenIdxPair(config, "data.idx.", idx.images(), idx.labels()));
  std::unique_ptr<ByteImages> test;
  if (idx.has_test_images()) {
    ASSIGN_OR_RETURN(ByteImages opened,
                     OpenIdxPair(config, "data.idx.test_", idx.test_images(), idx.test_labels()));
    test = std::make_unique<ByteImages>(std::move(opened));
  }
  return InMemory(config, std::move(train), std::move(test), config.model().classes());
}

absl::StatusOr<Datasets> OpenCifar10(const PlannedConfig& config) {
  constexpr absl::string_view kField = "data.cifar10.path";
  const std::string& path = config.proto().data().cifar10().path();
  absl::StatusOr<ByteImages> train = ReadCifar10(path, kCifar10TrainFiles);
  if (!train.ok()) return config.FieldError(kField, train.status().message());
  absl::StatusOr<ByteImages> test = ReadCifar10(path, kCifar10TestFiles);
  if (!test.ok()) return config.FieldError(kField, test.status().message());
  return InMemory(config, *std::move(train), std::make_unique<ByteImages>(*std::move(test)),
                  kCifar10Classes);
}

absl::StatusOr<std::unique_ptr<ImageFolder>> OpenOneFolder(const PlannedConfig& config,
                                                           absl::string_view field,
                                                           const std::string& path,
                                                           const ImageFolder::Options& options) {
  absl::StatusOr<std::unique_ptr<ImageFolder>> folder = ImageFolder::Open(path, options);
  if (!folder.ok()) return config.FieldError(field, folder.status().message());
  const Model& model = config.model();
  if ((*folder)->classes() > model.classes()) {
    return config.FieldError(
        field, absl::StrFormat("%s: has %d class folders, but the model %s has %d classes", path,
                               (*folder)->classes(), model.name(), model.classes()));
  }
  return folder;
}

absl::StatusOr<Datasets> OpenImageFolder(const PlannedConfig& config) {
  const Data& data = config.proto().data();
  const Data::ImageFolder& source = data.image_folder();
  const Shape3& input = config.model().input();
  const ImageFolder::Options options = {.crop = {input.height, input.width},
                                        .resize = source.resize(),
                                        .flip = data.augment().flip(),
                                        .random_crop = data.augment().crop_padding() > 0};
  ASSIGN_OR_RETURN(std::unique_ptr<ImageFolder> train,
                   OpenOneFolder(config, "data.image_folder.path", source.path(), options));
  std::unique_ptr<ImageFolder> test;
  if (source.has_test_path()) {
    constexpr absl::string_view kField = "data.image_folder.test_path";
    ASSIGN_OR_RETURN(test, OpenOneFolder(config, kField, source.test_path(), options));
    if (test->class_names() != train->class_names()) {
      return config.FieldError(kField, absl::StrFormat("%s: its class folders are not those of %s",
                                                       source.test_path(), source.path()));
    }
  }
  const int64_t size = train->size();
  Datasets result = Divide(std::move(train), SplitOf(config, size));
  if (test != nullptr) result.test = std::move(test);
  return result;
}

Datasets OpenSynthetic(const PlannedConfig& config) {
  const Data::Synthetic& source = config.proto().data().synthetic();
  return Divide(
      std::make_shared<SyntheticDataset>(config.model().input(), source.classes(), source.images(),
                                         source.noise(), config.proto().training().seed()),
      SplitOf(config, source.images()));
}

absl::StatusOr<Datasets> OpenSource(const PlannedConfig& config) {
  const Data& data = config.proto().data();
  switch (data.source_case()) {
    case Data::kIdx:
      return OpenIdx(config);
    case Data::kCifar10:
      return OpenCifar10(config);
    case Data::kImageFolder:
      return OpenImageFolder(config);
    case Data::kSynthetic:
      return OpenSynthetic(config);
    case Data::SOURCE_NOT_SET:
      break;
  }
  return config.FieldError(
      "data", "no data set is given, allowed are idx, cifar10, image_folder, synthetic");
}

}  // namespace

absl::StatusOr<Datasets> OpenDatasets(const PlannedConfig& config) {
  const Data& data = config.proto().data();
  ASSIGN_OR_RETURN(Datasets datasets, OpenSource(config));

  const int64_t given = datasets.train->size();
  const int64_t batch_size = config.proto().training().batch_size();
  const int64_t needed = config.workers() * batch_size;
  if (given < needed) {
    return config.FieldError(
        "training.batch_size",
        absl::StrFormat("%d worker(s) with batches of %d need at least %d training images, the "
                        "data has %d",
                        config.workers(), batch_size, needed, given));
  }
  const Data::Augment& augment = data.augment();
  const bool augmented = augment.flip() || augment.crop_padding() > 0;
  if (augmented && !data.has_image_folder()) {  // which augments while it resizes
    datasets.train = std::make_unique<AugmentedDataset>(std::move(datasets.train), augment.flip(),
                                                        augment.crop_padding());
  }
  return datasets;
}

}  // namespace evenshard
