#include "common/placement/plan/ring_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace evenshard {
namespace {

constexpr size_t kMostSegments = size_t{1} << 24;
// A buffer of more floats has buckets of its own, so that it stays where it is if others change.
constexpr int64_t kSmallBuffer = 1024;

int64_t FloatsIn(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); }

// Collects tensors from the last to the first into buckets.
class BucketBuilder {
 public:
  BucketBuilder(int64_t most, int64_t enough_at_first)
      : most_(most), enough_at_first_(enough_at_first) {}

  // Takes the next range, of a tensor of `layer` with the gap behind it. Ranges of different roles
  // do not share a bucket.
  void Add(int64_t begin, int64_t end, int layer, TensorRole role) {
    const bool is_apart = role == TensorRole::kBuffer && end - begin > kSmallBuffer;
    if (bucket_.size > 0 && (role != role_ || is_apart || bucket_.size + end - begin > most_)) {
      Complete();
    }
    role_ = role;
    if (end - begin > most_) {
      AddPieces(begin, end, layer);
      return;
    }
    if (bucket_.size == 0) bucket_.last_layer = layer;
    bucket_.first_layer = layer;
    bucket_.begin = begin;
    bucket_.size += end - begin;
    if (is_apart || (buckets_.empty() && bucket_.size >= enough_at_first_)) Complete();
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
  TensorRole role_ = TensorRole::kParameter;  // of the bucket
  std::vector<RingBucket> buckets_;
};

}  // namespace

RingPlan::Options RingPlan::OptionsOf(const ClusterConfig& config) {
  return {.workers = config.workers(),
          .bucket_bytes = config.ring().bucket_bytes(),
          .first_bucket_bytes = config.ring().first_bucket_bytes(),
          .chunk_bytes = config.limits().chunk_bytes(),
          .separates_roles = config.model().has_from_workers()};
}

void RingPlan::AddRuns(const Model& model) {
  const RingSegment& segment = segments_.back();
  const int64_t end = segment.begin + segment.size;
  auto tensor =
      std::upper_bound(model.tensors().begin(), model.tensors().end(), segment.begin,
                       [](int64_t index, const Tensor& each) { return index < each.offset; }) -
      1;
  for (; tensor != model.tensors().end() && tensor->offset < end; ++tensor) {
    runs_.push_back({.tensor = static_cast<int>(tensor - model.tensors().begin()),
                     .begin = std::max(tensor->offset, segment.begin),
                     .end = std::min(tensor->offset + tensor->size, end)});
  }
  first_runs_.push_back(runs_.size());
}

void RingPlan::AddLayers(const Model& model, const RingBucket& bucket) {
  RingSegment& segment = segments_.back();
  const absl::Span<const RingRun> tensors = runs(segment);
  // The first layer that has a tensor behind `tensor`, or has it.
  const auto advance = [&](int layer, int tensor) {
    while (model.layers()[layer].first_tensor + model.layers()[layer].tensor_count <= tensor) {
      ++layer;
    }
    return layer;
  };
  const bool is_first = segment.id == bucket.first_segment;
  segment.first_layer = advance(
      is_first ? bucket.first_layer : segments_[segment.id - 1].last_layer, tensors.front().tensor);
  segment.last_layer = advance(segment.first_layer, tensors.back().tensor);
  for (int layer = segment.first_layer; layer <= segment.last_layer; ++layer) {
    if (model.layers()[layer].tensor_count > 0) of_layer_[layer].push_back(segment.id);
  }
}

absl::StatusOr<RingPlan> RingPlan::Create(const Model& model, const Options& options) {
  RingPlan plan;
  BucketBuilder builder(FloatsIn(options.bucket_bytes) / kAlignment * kAlignment,
                        FloatsIn(options.first_bucket_bytes));
  int64_t end = model.buffer_size();
  for (int layer = static_cast<int>(model.layers().size()) - 1; layer >= 0; --layer) {
    const Layer& of = model.layers()[layer];
    for (int i = of.tensor_count - 1; i >= 0; --i) {
      const Tensor& tensor = model.tensors()[of.first_tensor + i];
      builder.Add(tensor.offset, end, layer,
                  options.separates_roles ? tensor.role : TensorRole::kParameter);
      end = tensor.offset;
    }
  }
  plan.buckets_ = builder.Finish();
  plan.of_layer_.resize(model.layers().size());
  plan.part_sizes_.resize(options.workers);
  std::string text = absl::StrCat("ring ", kRingPlanVersion, ";", options.workers, ";");
  for (RingBucket& of : plan.buckets_) {
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
                                  .part = part,
                                  .begin = begin,
                                  .size = size});
        plan.AddRuns(model);
        plan.AddLayers(model, of);
        RingSegment& made = plan.segments_.back();
        if (options.separates_roles) made.role = model.tensors()[plan.runs(made)[0].tensor].role;
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

}  // namespace evenshard
