#include "worker/data/formats/idx.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/read_file.h"

namespace evenshard {
namespace {

constexpr uint32_t kUnsignedByte = 0x08;
// Keeps the product of three dimensions below 2^63.
constexpr int64_t kMaxSide = 1 << 15;

uint32_t BigEndian32(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

struct IdxFile {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> elements;
};

absl::StatusOr<IdxFile> ReadIdx(const std::string& path, size_t dimensions) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  const size_t header = 4 + 4 * dimensions;
  const uint32_t magic = kUnsignedByte << 8 | static_cast<uint32_t>(dimensions);
  if (content.size() < header) {
    return absl::DataLossError(absl::StrFormat("%s: %d bytes are shorter than the header of %d",
                                               path, content.size(), header));
  }
  if (BigEndian32(content, 0) != magic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: starts with 0x%08X instead of 0x%08X, which marks an IDX file of "
                        "unsigned bytes with %d dimension(s)",
                        path, BigEndian32(content, 0), magic, dimensions));
  }
  IdxFile file;
  int64_t expected = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    const int64_t dimension = BigEndian32(content, 4 + 4 * i);
    if (dimension == 0 || (i > 0 && dimension > kMaxSide)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: dimension %d of its header is %d, allowed is 1 to %d", path, i + 1,
                          dimension, i > 0 ? kMaxSide : int64_t{UINT32_MAX}));
    }
    file.dimensions.push_back(dimension);
    expected *= dimension;
  }
  const int64_t given = static_cast<int64_t>(content.size() - header);
  if (given != expected) {
    return absl::DataLossError(
        absl::StrFormat("%s: %s, %d bytes follow the header, whose dimensions %s ask for %d", path,
                        given < expected ? "truncated" : "trailing bytes", given,
                        absl::StrJoin(file.dimensions, "x"), expected));
  }
  file.elements.assign(content.begin() + header, content.end());
  return file;
}

}  // namespace

absl::StatusOr<ByteImages> ReadIdxImages(const std::string& path) {
  ASSIGN_OR_RETURN(IdxFile file, ReadIdx(path, 3));
  ByteImages images;
  images.shape = {1, file.dimensions[1], file.dimensions[2]};
  images.pixels = std::move(file.elements);
  return images;
}

absl::StatusOr<std::vector<uint8_t>> ReadIdxLabels(const std::string& path, int64_t images,
                                                   int64_t classes) {
  ASSIGN_OR_RETURN(IdxFile file, ReadIdx(path, 1));
  if (file.dimensions[0] != images) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d labels for %d images", path, file.dimensions[0], images));
  }
  for (size_t i = 0; i < file.elements.size(); ++i) {
    if (file.elements[i] >= classes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: label %d of image %d is outside the model's %d classes (0 to %d)",
                          path, file.elements[i], i, classes, classes - 1));
    }
  }
  return std::move(file.elements);
}

}  // namespace evenshard
