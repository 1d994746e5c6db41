#ifndef PS_WORKER_DATA_JPEG_H_
#define PS_WORKER_DATA_JPEG_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/resize.h"

namespace ps {

// Decodes a JPEG image to RGB: grey ones get three equal channels, CMYK ones (ImageNet
// has some) are taken as Adobe writes them, inverted. An image that is larger than
// needed to cover `box` is decoded at the smallest n/8 of its size that still covers it,
// which is faster and averages the pixels that a resize would skip.
//
// Errors: DATA_LOSS with libjpeg's reason where the data is no JPEG image, damaged, or
// ends early; INVALID_ARGUMENT where it has more than 2^28 pixels after that scaling.
absl::StatusOr<RgbImage> DecodeJpeg(absl::string_view data, const ImageSize& box);

}  // namespace ps

#endif  // PS_WORKER_DATA_JPEG_H_
