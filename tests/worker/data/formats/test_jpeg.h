#ifndef EVENSHARD_TESTS_WORKER_DATA_FORMATS_TEST_JPEG_H_
#define EVENSHARD_TESTS_WORKER_DATA_FORMATS_TEST_JPEG_H_

#include <cstdint>
#include <functional>
#include <string>

namespace evenshard {

// Encodes a JPEG image of the best quality, without chroma subsampling. `components` is the number
// of values per pixel: 1 (grey), 3 (RGB) or 4 (CMYK, inverted as Adobe writes it).
std::string JpegBytes(int height, int width, int components,
                      const std::function<uint8_t(int row, int column, int component)>& pixel);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_DATA_FORMATS_TEST_JPEG_H_
