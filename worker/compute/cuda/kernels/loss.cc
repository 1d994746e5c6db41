#include <math.h>

#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/kernels/launch.h"

namespace evenshard::kernels {
namespace {

// The scores of an image are divided among this many threads: thread k takes the scores k, k +
// kScoreParts, and so on.
constexpr uint32_t kScoreParts = 32;

// The results of one thread.
struct ScorePart {
  float largest;
  float sum;     // of exp(score - largest)
  float beaten;  // 1 if a score other than the label's is at least the label's
};

template <typename T>
struct ScorePartBody {
  uint32_t classes;
  const T* scores;
  const int32_t* labels;
  ScorePart* parts;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t image = i / kScoreParts;
    const T* const row = scores + static_cast<size_t>(image) * classes;
    const float labelled = ToFloat(row[labels[image]]);
    ScorePart part = {-INFINITY, 0, 0};
    for (uint32_t c = i % kScoreParts; c < classes; c += kScoreParts) {
      const float score = ToFloat(row[c]);
      if (score > part.largest) {
        part.sum *= expf(part.largest - score);
        part.largest = score;
      }
      // One of minus infinity may be the first.
      if (score != -INFINITY) part.sum += expf(score - part.largest);
      // Neither is a NaN less than anything, nor is anything less than it.
      if (c != static_cast<uint32_t>(labels[image]) && !(score < labelled)) part.beaten = 1;
    }
    parts[i] = part;
  }
};

template <typename T>
struct ImageLossBody {
  uint32_t classes;
  const T* scores;
  const int32_t* labels;
  const ScorePart* parts;
  float* log_sums;  // log of the sum of exp(score), by image
  ImageLoss* losses;

  __host__ __device__ void operator()(uint32_t image) const {
    const ScorePart* const own = parts + image * kScoreParts;
    float largest = -INFINITY;
    for (uint32_t k = 0; k < kScoreParts; ++k) largest = fmaxf(largest, own[k].largest);
    float sum = 0;
    float beaten = 0;
    for (uint32_t k = 0; k < kScoreParts; ++k) {
      if (own[k].sum != 0) sum += own[k].sum * expf(own[k].largest - largest);
      beaten += own[k].beaten;
    }
    const float score = ToFloat(scores[static_cast<size_t>(image) * classes + labels[image]]);
    log_sums[image] = largest + logf(sum);
    losses[image] = {log_sums[image] - score, beaten == 0 ? 1 : 0};
  }
};

template <typename T>
struct ScoreGradientBody {
  uint32_t classes, used;
  const T* scores;
  const int32_t* labels;
  const float* log_sums;
  T* gradient;

  __host__ __device__ void operator()(uint32_t i) const {
    const uint32_t image = i / classes;
    float value = 0;
    if (image < used) {
      const float wanted = i % classes == static_cast<uint32_t>(labels[image]) ? 1 : 0;
      value = (expf(ToFloat(scores[i]) - log_sums[image]) - wanted) / used;
    }
    gradient[i] = FromFloat<T>(value);
  }
};

}  // namespace

int64_t SoftmaxScratch(int64_t images) {
  static_assert(sizeof(ScorePart) == 3 * sizeof(float));
  return images * (1 + 3 * kScoreParts);
}

void SoftmaxCrossEntropy(cudaStream_t stream, ElementType type, int64_t images, int64_t used,
                         int64_t classes, const void* scores, const int32_t* labels,
                         ImageLoss* losses, void* gradient, float* scratch) {
  float* const log_sums = scratch;
  ScorePart* const parts = reinterpret_cast<ScorePart*>(scratch + images);
  const uint32_t width = static_cast<uint32_t>(classes);
  WithType(type, [&](auto value) {
    using T = decltype(value);
    const T* const typed = static_cast<const T*>(scores);
    ForEach(stream, used * kScoreParts, ScorePartBody<T>{width, typed, labels, parts});
    ForEach(stream, used, ImageLossBody<T>{width, typed, labels, parts, log_sums, losses});
    if (gradient == nullptr) return;
    ForEach(stream, images * classes,
            ScoreGradientBody<T>{width, static_cast<uint32_t>(used), typed, labels, log_sums,
                                 static_cast<T*>(gradient)});
  });
}

}  // namespace evenshard::kernels
