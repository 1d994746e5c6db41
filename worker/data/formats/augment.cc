#include "worker/data/formats/augment.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"

namespace evenshard {

Augmentation DrawAugmentation(const CounterRandom& random, bool flip, int64_t free_rows,
                              int64_t free_columns) {
  return {.flip = flip && random.Below(0, 2) == 1,
          .top = static_cast<int64_t>(random.Below(1, free_rows + 1)),
          .left = static_cast<int64_t>(random.Below(2, free_columns + 1))};
}

AugmentedDataset::AugmentedDataset(std::unique_ptr<const Dataset> base, bool flip, int64_t padding)
    : base_(std::move(base)), flip_(flip), padding_(padding) {}

absl::Status AugmentedDataset::Read(int64_t index, const CounterRandom* augment,
                                    absl::Span<float> image, int32_t* label) const {
  if (augment == nullptr) return base_->Read(index, nullptr, image, label);
  std::vector<float> plain(image.size());
  RETURN_IF_ERROR(base_->Read(index, augment, absl::MakeSpan(plain), label));

  const Augmentation choice = DrawAugmentation(*augment, flip_, 2 * padding_, 2 * padding_);
  const Shape3 shape = base_->shape();
  float* out = image.data();
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    const float* plane = plain.data() + channel * shape.height * shape.width;
    for (int64_t row = 0; row < shape.height; ++row) {
      const int64_t y = row + choice.top - padding_;
      for (int64_t column = 0; column < shape.width; ++column) {
        const int64_t x =
            (choice.flip ? shape.width - 1 - column : column) + choice.left - padding_;
        const bool inside = y >= 0 && y < shape.height && x >= 0 && x < shape.width;
        *out++ = inside ? plane[y * shape.width + x] : 0.0f;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace evenshard
