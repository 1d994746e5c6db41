#include "worker/data/formats/in_memory.h"

#include <cmath>
#include <utility>

namespace evenshard {

Normalization NormalizationOf(const ByteImages& images, absl::Span<const uint32_t> indices) {
  const int64_t plane = images.shape.height * images.shape.width;
  const double count = static_cast<double>(plane) * static_cast<double>(indices.size());
  Normalization result;
  for (int64_t channel = 0; channel < images.shape.channels; ++channel) {
    uint64_t sum = 0;
    uint64_t sum_of_squares = 0;
    for (const uint32_t index : indices) {
      const uint8_t* pixels = images.pixels.data() + index * images.shape.size() + channel * plane;
      for (int64_t i = 0; i < plane; ++i) {
        const uint64_t pixel = pixels[i];
        sum += pixel;
        sum_of_squares += pixel * pixel;
      }
    }
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(sum_of_squares) / count - mean * mean;
    result.mean.push_back(static_cast<float>(mean));
    result.scale.push_back(variance > 0 ? static_cast<float>(1 / std::sqrt(variance)) : 1.0f);
  }
  return result;
}

InMemoryDataset::InMemoryDataset(ByteImages images, Normalization normalization, int64_t classes)
    : images_(std::move(images)), normalization_(std::move(normalization)), classes_(classes) {}

absl::Status InMemoryDataset::Read(int64_t index, const CounterRandom* augment,
                                   absl::Span<float> image, int32_t* label) const {
  const int64_t plane = images_.shape.height * images_.shape.width;
  const uint8_t* pixel = images_.pixels.data() + index * images_.shape.size();
  float* out = image.data();
  for (int64_t channel = 0; channel < images_.shape.channels; ++channel) {
    const float mean = normalization_.mean[channel];
    const float scale = normalization_.scale[channel];
    for (int64_t i = 0; i < plane; ++i) *out++ = (*pixel++ - mean) * scale;
  }
  *label = images_.labels[index];
  return absl::OkStatus();
}

}  // namespace evenshard
