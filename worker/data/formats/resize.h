#ifndef EVENSHARD_WORKER_DATA_FORMATS_RESIZE_H_
#define EVENSHARD_WORKER_DATA_FORMATS_RESIZE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace evenshard {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// Rows of pixels. Each pixel is red, green and blue.
struct RgbImage {
  ImageSize size;
  std::vector<uint8_t> pixels;
};

// Returns the smallest size that covers `box` in both directions and has the aspect ratio of
// `image`, to the nearest pixel. For a square box the shorter side gets the length of the box's
// side.
ImageSize CoveringSize(const ImageSize& image, const ImageSize& box);

// The part to cut out of an image after the whole image is resized.
struct Crop {
  ImageSize resized;
  int64_t top = 0;
  int64_t left = 0;
  ImageSize size;     // REQUIRES: the part lies within `resized`
  bool flip = false;  // mirror left to right, after cutting
};

// Writes the part of `image` to `out` as values of 0 to 255, in separate planes of red, green and
// blue. Resizing is bilinear between pixel centres, and repeats the pixels of the border beyond it.
// It does not average when it shrinks an image; the decoder's scaling does that.
void ResizeAndCrop(const RgbImage& image, const Crop& crop, absl::Span<float> out);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_RESIZE_H_
