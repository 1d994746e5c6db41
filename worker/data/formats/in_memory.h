#ifndef EVENSHARD_WORKER_DATA_FORMATS_IN_MEMORY_H_
#define EVENSHARD_WORKER_DATA_FORMATS_IN_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/formats/dataset.h"

namespace evenshard {

// Images as their files hold them: one byte per pixel and channel, image after image. Each image is
// stored channel by channel.
struct ByteImages {
  Shape3 shape;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;

  int64_t size() const { return static_cast<int64_t>(pixels.size()) / shape.size(); }
};

// The transformation (pixel - mean[channel]) * scale[channel], which brings each channel to mean 0
// and standard deviation 1.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> scale;
};

// Returns the normalisation for the images that `indices` selects, at least one. The sums are
// exact, so the result does not depend on the order of the images. A channel in which all pixels
// are equal gets scale 1.
Normalization NormalizationOf(const ByteImages& images, absl::Span<const uint32_t> indices);

// Images in memory, which are normalised when they are read. Ignores `augment`.
class InMemoryDataset : public Dataset {
 public:
  // `images` must have a label in [0, classes) for each image.
  InMemoryDataset(ByteImages images, Normalization normalization, int64_t classes);

  int64_t size() const override { return images_.size(); }
  Shape3 shape() const override { return images_.shape; }
  int64_t classes() const override { return classes_; }
  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override;

 private:
  const ByteImages images_;
  const Normalization normalization_;
  const int64_t classes_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_IN_MEMORY_H_
