#ifndef EVENSHARD_WORKER_DATA_FORMATS_JPEG_H_
#define EVENSHARD_WORKER_DATA_FORMATS_JPEG_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/formats/resize.h"

namespace evenshard {

// Decodes a JPEG image to RGB. Grey images get three equal channels. CMYK images, of which ImageNet
// has some, are taken to be inverted, as Adobe writes them. An image that is larger than needed to
// cover `box` is decoded at the smallest n/8 of its size that still covers it. This is faster, and
// averages pixels that a resize would skip.
//
// Errors: DATA_LOSS with libjpeg's reason if the data is not a JPEG image, is damaged or ends
// early; INVALID_ARGUMENT if the image has more than 2^28 pixels at the size at which it is
// decoded.
absl::StatusOr<RgbImage> DecodeJpeg(absl::string_view data, const ImageSize& box);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_JPEG_H_
