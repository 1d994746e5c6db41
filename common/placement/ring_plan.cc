#include "common/placement/ring_plan.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace evenshard {
namespace {

constexpr size_t kMostSegments = size_t{1} << 24;

int64_t FloatsIn(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); }

// Collects tensors from the last to the first into buckets.
class BucketBuilder {
 public:
  BucketBuilder(int64_t most, int64_t enough_at_first)
      : most_(most), enough_at_first_(enough_at_first) {}

  // Takes the next range, of a tensor of `layer` with the gap behind it.
  void Add(int64_t begin, int64_t end, int layer) {
    if (bucket_.size > 0 && bucket_.size + end - begin > most_) Complete();
    if (end - begin > most_) {
      AddPieces(begin, end, layer);
      return;
    }
    if (bucket_.size == 0) bucket_.last_layer = layer;
    bucket_.first_layer = layer;
    bucket_.begin = begin;
    bucket_.size += end - begin;
    if (buckets_.empty() && bucket_.size >= enough_at_first_) Complete();
  }

  std::vector<RingBucket> Finish() {
    if (bucket_.size > 0) Complete();
    return std::move(buckets_);
  }

 private:
  void Complete() {
    buckets_.push_back(bucket_);
    bucket_ = {};
  }

  // Makes a bucket of each of as many equal pieces as are needed, the last piece first.
  void AddPieces(int64_t begin, int64_t end, int layer) {
    const int64_t units = (end - begin) / kAlignment;
    const int64_t pieces = (end - begin + most_ - 1) / most_;
    for (int64_t i = pieces - 1; i >= 0; --i) {
      const int64_t piece_begin = begin + units * i / pieces * kAlignment;
      const int64_t piece_end = begin + units * (i + 1) / pieces * kAlignment;
      buckets_.push_back({.begin = piece_begin,
                          .size = piece_end - piece_begin,
                          .first_layer = layer,
                          .last_layer = layer});
    }
  }

  const int64_t most_;  // floats, a multiple of kAlignment
  const int64_t enough_at_first_;
  RingBucket bucket_;
  std::vector<RingBucket> buckets_;
};

}  // namespace

RingPlan::Options RingPlan::OptionsOf(const ClusterConfig& config) {
  return {.workers = config.workers(),
          .bucket_bytes = config.ring().bucket_bytes(),
          .first_bucket_bytes = config.ring().first_bucket_bytes(),
          .chunk_bytes = config.limits().chunk_bytes()};
}

absl::StatusOr<RingPlan> RingPlan::Create(const Model& model, const Options& options) {
  RingPlan plan;
  BucketBuilder builder(FloatsIn(options.bucket_bytes) / kAlignment * kAlignment,
                        FloatsIn(options.first_bucket_bytes));
  int64_t end = model.buffer_size();
  for (int layer = static_cast<int>(model.layers().size()) - 1; layer >= 0; --layer) {
    const Layer& of = model.layers()[layer];
    for (int i = of.tensor_count - 1; i >= 0; --i) {
      const int64_t begin = model.tensors()[of.first_tensor + i].offset;
      builder.Add(begin, end, layer);
      end = begin;
    }
  }
  plan.buckets_ = builder.Finish();
  plan.of_layer_.resize(model.layers().size());
  plan.part_sizes_.resize(options.workers);
  std::string text = absl::StrCat("ring ", kRingPlanVersion, ";", options.workers, ";");
  for (int bucket = 0; bucket < static_cast<int>(plan.buckets_.size()); ++bucket) {
    RingBucket& of = plan.buckets_[bucket];
    for (int layer = of.first_layer; layer <= of.last_layer; ++layer) {
      if (model.layers()[layer].tensor_count > 0) plan.of_layer_[layer].push_back(bucket);
    }
    of.first_segment = static_cast<uint32_t>(plan.segments_.size());
    const int64_t units = of.size / kAlignment;
    for (int part = 0; part < options.workers; ++part) {
      int64_t begin = of.begin + units * part / options.workers * kAlignment;
      const int64_t part_end = of.begin + units * (part + 1) / options.workers * kAlignment;
      plan.part_sizes_[part] += part_end - begin;
      while (begin < part_end) {
        if (plan.segments_.size() == kMostSegments) {
          return absl::InvalidArgumentError(absl::StrCat(
              "chunk_bytes is ", options.chunk_bytes, ", which cuts the model into more than ",
              kMostSegments, " chunks, allowed: larger chunks"));
        }
        const int64_t size = std::min(FloatsIn(options.chunk_bytes), part_end - begin);
        plan.segments_.push_back({.id = static_cast<uint32_t>(plan.segments_.size()),
                                  .bucket = bucket,
                                  .part = part,
                                  .begin = begin,
                                  .size = size});
        absl::StrAppend(&text, begin, ",", size, ",", part, ";");
        begin += size;
      }
    }
    of.segments = static_cast<uint32_t>(plan.segments_.size()) - of.first_segment;
  }
  for (const Tensor& tensor : model.tensors()) {
    absl::StrAppend(&text, tensor.name, ",", tensor.offset, ",", tensor.size, ";");
  }
  plan.fingerprint_ = Fnv1a64(text);
  return plan;
}

int64_t RingPlan::floats_sent(int place) const {
  const int64_t all = std::accumulate(part_sizes_.begin(), part_sizes_.end(), int64_t{0});
  return 2 * all - part_sizes_[place] - part_sizes_[(place + 1) % part_sizes_.size()];
}

}  // namespace evenshard
