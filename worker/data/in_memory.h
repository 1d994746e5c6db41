#ifndef PS_WORKER_DATA_IN_MEMORY_H_
#define PS_WORKER_DATA_IN_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/dataset.h"

namespace ps {

// Images as their files hold them: one byte a pixel, image after image, each channel
// by channel.
struct ByteImages {
  Shape3 shape;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;

  int64_t size() const { return static_cast<int64_t>(pixels.size()) / shape.size(); }
};

// What brings each channel to mean 0 and standard deviation 1:
// (pixel - mean[channel]) * scale[channel].
struct Normalization {
  std::vector<float> mean;
  std::vector<float> scale;
};

// Of the images named by `indices`, at least one. The sums are exact, so the result is a
// pure function of those images. A channel of one value keeps scale 1.
Normalization NormalizationOf(const ByteImages& images, absl::Span<const uint32_t> indices);

// Images in memory, normalised on reading. Ignores `augment`.
class InMemoryDataset : public Dataset {
 public:
  // `images` has a label in [0, classes) for each image.
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

}  // namespace ps

#endif  // PS_WORKER_DATA_IN_MEMORY_H_
