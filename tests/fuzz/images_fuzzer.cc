// libFuzzer target: files of images and labels: IDX, CIFAR-10 and JPEG, compressed or not.
//
// The first byte of the input selects the format; the rest is the file.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzzing.h"
#include "worker/data/formats/cifar10.h"
#include "worker/data/formats/idx.h"
#include "worker/data/formats/jpeg.h"

namespace evenshard {
namespace {

constexpr int64_t kClasses = 10;

void CheckImages(const ByteImages& images) {
  Require(images.shape.size() > 0 && images.size() > 0, "there is an image");
  Require(images.size() * images.shape.size() == static_cast<int64_t>(images.pixels.size()),
          "images are whole");
}

void Check(uint8_t format, absl::string_view bytes) {
  if (format % 4 == 0) {
    const auto image = DecodeJpeg(bytes, {.height = 8, .width = 8});
    if (!image.ok()) return;
    const int64_t pixels = image->size.height * image->size.width;
    Require(pixels > 0 && static_cast<int64_t>(image->pixels.size()) == 3 * pixels,
            "an image has its pixels");
    return;
  }
  const int file = memfd_create("fuzzed", MFD_CLOEXEC);
  Require(
      file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
      "the file is written");
  const absl::Cleanup close_file = [file] { close(file); };
  const std::string name = absl::StrCat(file);
  const std::string path = absl::StrCat("/proc/self/fd/", name);
  if (format % 4 == 1) {
    if (const auto images = ReadIdxImages(path); images.ok()) CheckImages(*images);
  } else if (format % 4 == 2) {
    const auto labels = ReadIdxLabels(path, /*images=*/3, kClasses);
    if (labels.ok()) Require(labels->size() == 3, "each image has a label");
  } else {
    const auto images = ReadCifar10("/proc/self/fd", {name});
    if (images.ok()) {
      CheckImages(*images);
      Require(static_cast<int64_t>(images->labels.size()) == images->size(), "and a label");
    }
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size == 0) return 0;
  evenshard::Check(input[0], {reinterpret_cast<const char*>(input + 1), size - 1});
  return 0;
}
