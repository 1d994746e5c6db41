#ifndef PS_WORKER_DATA_RESIZE_H_
#define PS_WORKER_DATA_RESIZE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ps {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// Rows of pixels, each red, green and blue.
struct RgbImage {
  ImageSize size;
  std::vector<uint8_t> pixels;
};

// The smallest size with the aspect ratio of `image`, to the nearest pixel, that covers
// `box` in both directions. For a square box this brings the shorter side to the box's.
ImageSize CoveringSize(const ImageSize& image, const ImageSize& box);

// What to cut out of an image, after resizing the whole of it.
struct Crop {
  ImageSize resized;
  int64_t top = 0;
  int64_t left = 0;
  ImageSize size;     // top + size.height <= resized.height, and so for the width
  bool flip = false;  // left to right, after cutting
};

// Writes the cut-out, red, green and blue plane by plane, as values of 0 to 255.
// Bilinear interpolation of pixel centres, where the border's pixels continue outwards;
// no averaging when shrinking, which is what the decoder's scaling is for.
void ResizeAndCrop(const RgbImage& image, const Crop& crop, absl::Span<float> out);

}  // namespace ps

#endif  // PS_WORKER_DATA_RESIZE_H_
