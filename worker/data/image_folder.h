#ifndef PS_WORKER_DATA_IMAGE_FOLDER_H_
#define PS_WORKER_DATA_IMAGE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/resize.h"

namespace ps {

// A folder with one folder of JPEG images per class, as ImageNet is laid out. Classes
// are numbered in the byte order of their folders' names, images in that order and
// then by file name. Listed at opening, decoded on reading.
//
// An image is resized so that its shorter side becomes `resize` (for a shape that is
// not square: so that it just covers the shape times resize / its shorter side), then
// cropped in the centre, or at random where reading augments; then each channel of
// 0 .. 1 is normalised by ImageNet's usual mean and standard deviation.
class ImageFolder : public Dataset {
 public:
  struct Options {
    ImageSize crop;        // height and width of what Read writes
    int64_t resize = 256;  // at least the shorter side of `crop`
    bool flip = false;     // at random, when augmenting
    bool random_crop = false;
  };

  // Folders whose names begin with a dot, files beside the class folders, and files not
  // named *.jpg or *.jpeg (in any case) are passed over. Errors, each naming the path:
  // NOT_FOUND and the like where a folder cannot be read; INVALID_ARGUMENT where there is
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

}  // namespace ps

#endif  // PS_WORKER_DATA_IMAGE_FOLDER_H_
