#include "common/placement/plan/ring_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "tests/common/placement/plan/ring_fixture.h"

namespace evenshard {
namespace {

// Checks that buckets cover the buffer from its end to its begin, without holes or overlaps, and
// that segments cover the buckets, in order.
void CheckCovers(const Model& model, const RingPlan& plan, const RingPlan::Options& options) {
  int64_t end = model.buffer_size();
  uint32_t next_segment = 0;
  for (const RingBucket& bucket : plan.buckets()) {
    REQUIRE(bucket.begin + bucket.size == end);
    end = bucket.begin;
    CHECK(bucket.size * 4 <= options.bucket_bytes);
    REQUIRE(bucket.first_segment == next_segment);
    next_segment += bucket.segments;
    int64_t begin = bucket.begin;
    std::vector<int64_t> parts(options.workers);
    for (uint32_t id = bucket.first_segment; id < next_segment; ++id) {
      const RingSegment& segment = plan.segments()[id];
      REQUIRE(segment.id == id);
      REQUIRE(segment.begin == begin);
      REQUIRE(segment.size > 0);
      CHECK(segment.size * 4 <= options.chunk_bytes);
      CHECK(segment.begin % kAlignment == 0);
      parts[segment.part] += segment.size;
      begin += segment.size;
    }
    CHECK(begin == bucket.begin + bucket.size);
    const auto [least, most] = std::minmax_element(parts.begin(), parts.end());
    CHECK(*most - *least <= kAlignment);
  }
  CHECK(end == 0);
  CHECK(next_segment == plan.segments().size());
}

TEST_CASE("a plan covers every float of every model once") {
  for (const char* name : {"mnist_mlp", "alexnet", "vgg16", "resnet152"}) {
    const Model model = Builtin(name);
    for (const int workers : {2, 3, 5, 8}) {
      const RingPlan::Options options = {.workers = workers,
                                         .bucket_bytes = 25 << 20,
                                         .first_bucket_bytes = 1 << 20,
                                         .chunk_bytes = 640 << 10};
      INFO(name << ", " << workers << " workers");
      const RingPlan plan = PlanOf(model, options);
      CheckCovers(model, plan, options);
    }
  }
}

TEST_CASE("parts may be empty where a bucket has less than 16 floats for each worker") {
  const Model model = SmallModel();
  const RingPlan::Options options = {
      .workers = 8, .bucket_bytes = 64, .first_bucket_bytes = 64, .chunk_bytes = 64};
  CheckCovers(model, PlanOf(model, options), options);
}

TEST_CASE("a tensor that is larger than a bucket is cut into equal pieces, each its own bucket") {
  const Model model = Builtin("vgg16");
  const RingPlan plan = PlanOf(model, {.workers = 4,
                                       .bucket_bytes = 25 << 20,
                                       .first_bucket_bytes = 1 << 20,
                                       .chunk_bytes = 1 << 20});
  const auto layer = std::find_if(model.layers().begin(), model.layers().end(),
                                  [](const Layer& each) { return each.name == "fc6"; });
  const auto fc6 = static_cast<int>(layer - model.layers().begin());
  std::vector<int64_t> sizes;
  for (const RingBucket& bucket : plan.buckets()) {
    if (bucket.first_layer <= fc6 && fc6 <= bucket.last_layer) sizes.push_back(bucket.size);
  }
  // Its weights have 16 pieces, and its biases are in the bucket before them.
  REQUIRE(sizes.size() == 17);
  for (const int64_t size : sizes) {
    CHECK((size == sizes[0] || std::abs(size - sizes[1]) <= kAlignment));
  }
}

TEST_CASE("the first bucket is complete when it has its bytes, and small tensors share buckets") {
  const Model model = Builtin("resnet152");
  const RingPlan plan = PlanOf(model, {.workers = 2,
                                       .bucket_bytes = 25 << 20,
                                       .first_bucket_bytes = 1 << 20,
                                       .chunk_bytes = 1 << 20});
  // fc, of 8.2 MB, is the first tensor that gives it 1 MiB.
  CHECK(plan.buckets()[0].size == 2048 * 1000 + 1008);
  CHECK(plan.buckets().size() < 20);
}

TEST_CASE("each layer knows the segments that have its tensors, and they know it") {
  for (const char* name : {"alexnet", "resnet152"}) {
    const Model model = Builtin(name);
    const RingPlan plan = PlanOf(model, {.workers = 3,
                                         .bucket_bytes = 4 << 20,
                                         .first_bucket_bytes = 1 << 20,
                                         .chunk_bytes = 1 << 20});
    std::vector<std::set<int>> layers_of(plan.segments().size());
    for (size_t layer = 0; layer < model.layers().size(); ++layer) {
      std::vector<uint32_t> expected;
      if (model.layers()[layer].tensor_count > 0) {
        const Model::Range range = model.RangeOf(model.layers()[layer]);
        for (const RingSegment& segment : plan.segments()) {
          if (segment.begin >= range.begin + range.size) continue;
          if (range.begin >= segment.begin + segment.size) continue;
          expected.push_back(segment.id);
          layers_of[segment.id].insert(static_cast<int>(layer));
        }
      }
      const absl::Span<const uint32_t> segments = plan.segments_of_layer(static_cast<int>(layer));
      REQUIRE(std::vector<uint32_t>(segments.begin(), segments.end()) == expected);
    }
    for (const RingSegment& segment : plan.segments()) {
      REQUIRE(segment.first_layer == *layers_of[segment.id].begin());
      REQUIRE(segment.last_layer == *layers_of[segment.id].rbegin());
    }
  }
}

TEST_CASE("the fingerprint tells plans apart, and only plans") {
  const Model model = SmallModel();
  const RingPlan::Options options = {
      .workers = 3, .bucket_bytes = 4096, .first_bucket_bytes = 1024, .chunk_bytes = 512};
  const uint64_t fingerprint = PlanOf(model, options).fingerprint();
  CHECK(PlanOf(model, options).fingerprint() == fingerprint);
  for (const auto& [workers, bucket, first, chunk] :
       {std::tuple(2, 4096, 1024, 512), std::tuple(3, 2048, 1024, 512),
        std::tuple(3, 4096, 2048, 512), std::tuple(3, 4096, 1024, 256)}) {
    CHECK(PlanOf(model, {.workers = workers,
                         .bucket_bytes = bucket,
                         .first_bucket_bytes = first,
                         .chunk_bytes = chunk})
              .fingerprint() != fingerprint);
  }
}

TEST_CASE("a plan with too many segments is refused") {
  const absl::Status status = RingPlan::Create(Builtin("vgg16"), {.workers = 2,
                                                                  .bucket_bytes = 25 << 20,
                                                                  .first_bucket_bytes = 1 << 20,
                                                                  .chunk_bytes = 64 >> 1})
                                  .status();
  CHECK(status.message() ==
        "chunk_bytes is 32, which cuts the model into more than 16777216 chunks, allowed: larger "
        "chunks");
}

TEST_CASE("the tensors of a segment are its elements but for the gaps") {
  const Model model = SmallModel();
  const RingPlan plan = PlanOf(
      model, {.workers = 3, .bucket_bytes = 4096, .first_bucket_bytes = 1024, .chunk_bytes = 512});
  std::vector<int64_t> covered(model.tensors().size());
  size_t runs = 0;
  for (const RingSegment& segment : plan.segments()) {
    CHECK(plan.first_run(segment) == runs);
    for (const RingRun& run : plan.runs(segment)) {
      const Tensor& tensor = model.tensors()[run.tensor];
      CHECK(run.begin < run.end);
      CHECK(run.begin >= std::max(tensor.offset, segment.begin));
      CHECK(run.end <= std::min(tensor.offset + tensor.size, segment.begin + segment.size));
      covered[run.tensor] += run.end - run.begin;
      ++runs;
    }
  }
  CHECK(runs == plan.run_count());
  for (size_t i = 0; i < covered.size(); ++i) CHECK(covered[i] == model.tensors()[i].size);
}

TEST_CASE("tensors that workers bring share buckets with those of their role only") {
  const Model model = ModelOf(R"(from_workers {
    tensor { name: "a" shape: 100 layer: "a" }
    tensor { name: "b" shape: 1 layer: "b" }
    tensor { name: "mean" shape: 30 layer: "mean" role: RUNNING_STATISTIC }
    tensor { name: "frozen" shape: 40 layer: "frozen" role: BUFFER }
    tensor { name: "large" shape: 5000 layer: "large" role: BUFFER }
    tensor { name: "count" shape: 1 layer: "count" role: BUFFER } })");
  RingPlan::Options options = {.workers = 2,
                               .bucket_bytes = 1 << 20,
                               .first_bucket_bytes = 1 << 20,
                               .chunk_bytes = 1 << 20,
                               .separates_roles = true};
  const RingPlan plan = PlanOf(model, options);
  CHECK(plan.buckets().size() == 5);  // and one for each buffer here
  for (const RingSegment& segment : plan.segments()) {
    for (const RingRun& run : plan.runs(segment)) {
      CHECK(model.tensors()[run.tensor].role == segment.role);
    }
  }
  options.separates_roles = false;
  CHECK(PlanOf(model, options).buckets().size() == 1);
}

}  // namespace
}  // namespace evenshard
