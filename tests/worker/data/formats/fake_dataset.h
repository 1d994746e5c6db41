#ifndef EVENSHARD_TESTS_WORKER_DATA_FORMATS_FAKE_DATASET_H_
#define EVENSHARD_TESTS_WORKER_DATA_FORMATS_FAKE_DATASET_H_

#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "worker/data/formats/dataset.h"

namespace evenshard {

// Image i has label i. Its pixels are 1000 * i + 1, + 2, ... in the order of memory. If a read is
// augmented and `shows_random` is set, the first random number, which is below 0.5, is added to all
// of them.
class FakeDataset : public Dataset {
 public:
  FakeDataset(int64_t size, Shape3 shape, bool shows_random = false)
      : size_(size), shape_(shape), shows_random_(shows_random) {}

  int64_t size() const override { return size_; }
  Shape3 shape() const override { return shape_; }
  int64_t classes() const override { return size_; }
  absl::Status Read(int64_t index, const CounterRandom* augment, absl::Span<float> image,
                    int32_t* label) const override {
    if (unreadable_.count(index) > 0) {
      return absl::DataLossError(absl::StrCat("image ", index, " is damaged"));
    }
    const float random = shows_random_ && augment != nullptr ? augment->Uniform(0) / 2 : 0;
    for (size_t i = 0; i < image.size(); ++i) image[i] = 1000.0f * index + 1 + i + random;
    *label = static_cast<int32_t>(index);
    return absl::OkStatus();
  }
  void MakeUnreadable(int64_t index) { unreadable_.insert(index); }

 private:
  const int64_t size_;
  const Shape3 shape_;
  const bool shows_random_;
  std::set<int64_t> unreadable_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_DATA_FORMATS_FAKE_DATASET_H_
