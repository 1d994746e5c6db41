#include "worker/data/formats/jpeg.h"

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

// Must follow <cstdio>, which it needs.
#include <jerror.h>
#include <jpeglib.h>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace evenshard {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 28;

// libjpeg reports an error by calling a function that must not return.
struct ErrorHandler {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void OnError(j_common_ptr jpeg) {
  auto* handler = reinterpret_cast<ErrorHandler*>(jpeg->err);
  handler->manager.format_message(jpeg, handler->message);
  std::longjmp(handler->jump, 1);
}

// libjpeg only warns when it makes up pixels. Such images are refused. Other warnings, such as
// stray bytes between segments, affect no pixel.
void OnMessage(j_common_ptr jpeg, int level) {
  if (level >= 0) return;  // not a warning
  switch (jpeg->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      OnError(jpeg);
    default:
      return;
  }
}

// Holds everything that the decoder needs. It lives in a frame below the one that OnError jumps to,
// so that its destructors run after an error too.
class Decoder {
 public:
  Decoder() {
    jpeg_.err = jpeg_std_error(&handler_.manager);
    handler_.manager.error_exit = OnError;
    handler_.manager.emit_message = OnMessage;
  }
  ~Decoder() { jpeg_destroy_decompress(&jpeg_); }

  absl::StatusOr<RgbImage> Decode(absl::string_view data, const ImageSize& box) {
    if (!Start(data, box)) return absl::DataLossError(handler_.message);
    const int64_t pixels = int64_t{jpeg_.output_height} * jpeg_.output_width;
    if (pixels > kMaxPixels) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%dx%d pixels are too many, at most %d are allowed", jpeg_.output_width,
                          jpeg_.output_height, kMaxPixels));
    }
    image_.size = {jpeg_.output_height, jpeg_.output_width};
    image_.pixels.resize(pixels * 3);
    row_.resize(size_t{jpeg_.output_width} * 4);
    if (!ReadRows()) return absl::DataLossError(handler_.message);
    return std::move(image_);
  }

 private:
  // Reads the header and chooses the size. Returns false after an error, with handler_.message set.
  bool Start(absl::string_view data, const ImageSize& box) {
    if (setjmp(handler_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_mem_src(&jpeg_, reinterpret_cast<const uint8_t*>(data.data()), data.size());
    jpeg_read_header(&jpeg_, TRUE);
    const bool cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_.scale_denom = 8;
    for (jpeg_.scale_num = 1; jpeg_.scale_num < 8; ++jpeg_.scale_num) {
      jpeg_calc_output_dimensions(&jpeg_);
      if (jpeg_.output_height >= box.height && jpeg_.output_width >= box.width) break;
    }
    jpeg_calc_output_dimensions(&jpeg_);
    return true;
  }

  bool ReadRows() {
    if (setjmp(handler_.jump) != 0) return false;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      uint8_t* out = image_.pixels.data() + size_t{jpeg_.output_scanline} * jpeg_.output_width * 3;
      if (jpeg_.out_color_space == JCS_RGB) {
        jpeg_read_scanlines(&jpeg_, &out, 1);
        continue;
      }
      uint8_t* in = row_.data();
      jpeg_read_scanlines(&jpeg_, &in, 1);
      for (unsigned x = 0; x < jpeg_.output_width; ++x, in += 4) {
        for (int channel = 0; channel < 3; ++channel) {
          *out++ = static_cast<uint8_t>(in[channel] * in[3] / 255);
        }
      }
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  ErrorHandler handler_{};
  jpeg_decompress_struct jpeg_{};
  RgbImage image_;
  std::vector<uint8_t> row_;  // in CMYK
};

}  // namespace

absl::StatusOr<RgbImage> DecodeJpeg(absl::string_view data, const ImageSize& box) {
  return Decoder().Decode(data, box);
}

}  // namespace evenshard
