#include "worker/data/formats/cifar10.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/read_file.h"

namespace evenshard {

absl::StatusOr<ByteImages> ReadCifar10(const std::string& folder,
                                       absl::Span<const absl::string_view> files) {
  ByteImages images;
  images.shape = {3, 32, 32};
  const size_t record = 1 + images.shape.size();
  for (const absl::string_view name : files) {
    const std::string path = absl::StrCat(folder, "/", name);
    ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
    if (content.empty() || content.size() % record != 0) {
      return absl::DataLossError(absl::StrFormat(
          "%s: %d bytes are not a whole number of records of %d bytes (1 label, 3x32x32 pixels); "
          "the file is truncated or not of the CIFAR-10 binary version",
          path, content.size(), record));
    }
    for (size_t at = 0; at < content.size(); at += record) {
      const uint8_t label = content[at];
      if (label >= kCifar10Classes) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s: label %d of record %d is outside the 10 classes (0 to 9)", path,
                            label, at / record));
      }
      images.labels.push_back(label);
      images.pixels.insert(images.pixels.end(), content.begin() + at + 1,
                           content.begin() + at + record);
    }
  }
  return images;
}

}  // namespace evenshard
