#include "worker/data/formats/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/augment.h"
#include "worker/data/formats/jpeg.h"
#include "worker/data/formats/read_file.h"

namespace evenshard {
namespace {

// The statistics of ImageNet's training set, with pixels in [0, 1], that torchvision and others
// use.
constexpr float kMean[] = {0.485f, 0.456f, 0.406f};
constexpr float kDeviation[] = {0.229f, 0.224f, 0.225f};

bool IsJpegName(const std::string& name) {
  return absl::EndsWithIgnoreCase(name, ".jpg") || absl::EndsWithIgnoreCase(name, ".jpeg");
}

// Returns the sorted names of those entries of a folder for which `keep` returns true.
template <typename Keep>
absl::StatusOr<std::vector<std::string>> ListNames(const std::string& folder, const Keep& keep) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (keep(*entry)) names.push_back(entry->path().filename().string());
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read the folder ", folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

ImageFolder::ImageFolder(std::string path, const Options& options)
    : path_(std::move(path)), options_(options) {}

absl::StatusOr<std::unique_ptr<ImageFolder>> ImageFolder::Open(const std::string& path,
                                                               const Options& options) {
  auto folder = absl::WrapUnique(new ImageFolder(path, options));
  RETURN_IF_ERROR(folder->List());
  return folder;
}

absl::Status ImageFolder::List() {
  using Entry = std::filesystem::directory_entry;
  const auto is_class = [](const Entry& entry) {
    std::error_code ignored;  // a broken link is not a folder
    return entry.path().filename().string()[0] != '.' && entry.is_directory(ignored);
  };
  ASSIGN_OR_RETURN(class_names_, ListNames(path_, is_class));
  if (class_names_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": has no folders; one folder of JPEG images per class is expected"));
  }
  const auto is_image = [](const Entry& entry) {
    return IsJpegName(entry.path().filename().string());
  };
  for (size_t label = 0; label < class_names_.size(); ++label) {
    const std::string folder = absl::StrCat(path_, "/", class_names_[label]);
    ASSIGN_OR_RETURN(std::vector<std::string> names, ListNames(folder, is_image));
    if (names.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder, ": has no JPEG image (*.jpg or *.jpeg), every class needs at least one"));
    }
    for (std::string& name : names) {
      files_.push_back({static_cast<int32_t>(label), std::move(name)});
    }
  }
  return absl::OkStatus();
}

absl::Status ImageFolder::Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                               int32_t* label) const {
  const File& file = files_[index];
  const std::string path = absl::StrCat(path_, "/", class_names_[file.label], "/", file.name);
  ASSIGN_OR_RETURN(const std::string data, ReadFile(path));

  const ImageSize& size = options_.crop;
  const int64_t shorter = std::min(size.height, size.width);
  const ImageSize box = {size.height * options_.resize / shorter,
                         size.width * options_.resize / shorter};
  absl::StatusOr<RgbImage> decoded = DecodeJpeg(data, box);
  if (!decoded.ok()) {
    return absl::DataLossError(
        absl::StrCat("cannot decode ", path, ": ", decoded.status().message()));
  }

  Crop crop{.resized = CoveringSize(decoded->size, box), .size = size};
  const int64_t free_rows = crop.resized.height - size.height;
  const int64_t free_columns = crop.resized.width - size.width;
  crop.top = free_rows / 2;
  crop.left = free_columns / 2;
  if (augment != nullptr) {
    const Augmentation choice = DrawAugmentation(*augment, options_.flip, free_rows, free_columns);
    crop.flip = choice.flip;
    if (options_.random_crop) {
      crop.top = choice.top;
      crop.left = choice.left;
    }
  }
  ResizeAndCrop(*decoded, crop, image);
  const int64_t plane = size.height * size.width;
  for (int64_t channel = 0; channel < 3; ++channel) {
    for (float& value : image.subspan(channel * plane, plane)) {
      value = (value / 255 - kMean[channel]) / kDeviation[channel];
    }
  }
  *label = file.label;
  return absl::OkStatus();
}

}  // namespace evenshard
