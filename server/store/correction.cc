#include "server/store/correction.h"

#include <cmath>
#include <limits>

namespace evenshard {
namespace {

constexpr float kKept = 0.95f;  // of a mean square, with each update
constexpr float kTaken = 1 - kKept;
constexpr float kEpsilon = 1e-7f;

EVENSHARD_VECTORIZED
void Scale(const UnalignedFloat* __restrict gradient, float scale, float* __restrict corrected,
           int64_t n) {
  for (int64_t i = 0; i < n; ++i) corrected[i] = scale * gradient[i];
}

EVENSHARD_VECTORIZED
void Compensate(const float* __restrict parameters, const float* __restrict sent, float lambda,
                float* __restrict corrected, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = corrected[i];
    corrected[i] = g + lambda * (g * g) * (parameters[i] - sent[i]);
  }
}

EVENSHARD_VECTORIZED
void CompensateAdaptively(const float* __restrict parameters, const float* __restrict sent,
                          float lambda, const float* __restrict mean_square,
                          float* __restrict corrected, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = corrected[i];
    const float factor = lambda / std::sqrt(mean_square[i] + kEpsilon);
    corrected[i] = g + factor * (g * g) * (parameters[i] - sent[i]);
  }
}

EVENSHARD_VECTORIZED
void TakeGradients(const float* __restrict corrected, float* __restrict mean_square, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    mean_square[i] = kKept * mean_square[i] + kTaken * (corrected[i] * corrected[i]);
  }
}

EVENSHARD_VECTORIZED
void DivideByGap(const float* __restrict parameters, const float* __restrict sent,
                 const float* __restrict mean_square, float* __restrict corrected, int64_t n) {
  // Where nothing has moved yet, there is no gap either.
  constexpr float kLeast = std::numeric_limits<float>::min();
  for (int64_t i = 0; i < n; ++i) {
    const float step = std::sqrt(mean_square[i]);
    const float gap = std::fabs(parameters[i] - sent[i]);
    corrected[i] = corrected[i] / (1.0f + gap / (step < kLeast ? kLeast : step));
  }
}

EVENSHARD_VECTORIZED
void TakeStepsInto(const float* __restrict before, const float* __restrict after,
                   float* __restrict mean_square, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float d = after[i] - before[i];
    const float s = mean_square[i];
    const float averaged = kKept * s + kTaken * (d * d);
    mean_square[i] = s == 0.0f ? d * d : averaged;
  }
}

}  // namespace

void Correction::Correct(const UnalignedFloat* gradient, float scale, const float* parameters,
                         const float* sent, float* mean_square, float* corrected, int64_t n) const {
  Scale(gradient, scale, corrected, n);
  if (kind_ == Asynchrony::ADAPTIVE_DELAY_COMPENSATION) TakeGradients(corrected, mean_square, n);
  if (sent == nullptr) return;
  switch (kind_) {
    case Asynchrony::NONE:
      return;
    case Asynchrony::DELAY_COMPENSATION:
      return Compensate(parameters, sent, lambda_, corrected, n);
    case Asynchrony::ADAPTIVE_DELAY_COMPENSATION:
      return CompensateAdaptively(parameters, sent, lambda_, mean_square, corrected, n);
    case Asynchrony::GAP_AWARE:
      return DivideByGap(parameters, sent, mean_square, corrected, n);
  }
}

void Correction::TakeSteps(const float* before, const float* after, float* mean_square, int64_t n) {
  TakeStepsInto(before, after, mean_square, n);
}

}  // namespace evenshard
