#ifndef EVENSHARD_WORKER_DATA_FORMATS_IMAGE_FOLDER_H_
#define EVENSHARD_WORKER_DATA_FORMATS_IMAGE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/formats/resize.h"

namespace evenshard {

// A folder that contains one folder of JPEG images per class, like ImageNet. Classes are numbered
// in the byte order of their folders' names, images by class and then by file name. The files are
// listed when the folder is opened, and decoded when they are read.
//
// An image is resized to the smallest size that covers `crop` times `resize` / (the shorter side of
// `crop`), so that for a square crop its shorter side becomes `resize`. It is then cropped in the
// centre, or, if it is augmented and `random_crop` is set, at random. Finally each channel, scaled
// to [0, 1], is normalised with the usual mean and standard deviation of ImageNet.
class ImageFolder : public Dataset {
 public:
  struct Options {
    ImageSize crop;        // the height and width that Read writes
    int64_t resize = 256;  // at least the shorter side of `crop`
    bool flip = false;     // at random, if augmented
    bool random_crop = false;
  };

  // Opens the folder at `path`. Ignores folders whose names begin with a dot, files beside the
  // class folders, and files that are not named *.jpg or *.jpeg (in any case). Errors, which name
  // the path: NOT_FOUND or another status if a folder cannot be read; INVALID_ARGUMENT if there is
  // no class, or a class without an image.
  static absl::StatusOr<std::unique_ptr<ImageFolder>> Open(const std::string& path,
                                                           const Options& options);

  const std::vector<std::string>& class_names() const { return class_names_; }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  Shape3 shape() const override { return {3, options_.crop.height, options_.crop.width}; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override;

 private:
  struct File {
    int32_t label;
    std::string name;
  };

  ImageFolder(std::string path, const Options& options);
  absl::Status List();

  const std::string path_;
  const Options options_;
  std::vector<std::string> class_names_;  // constant after Open
  std::vector<File> files_;               // constant after Open
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_IMAGE_FOLDER_H_
