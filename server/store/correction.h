#ifndef EVENSHARD_SERVER_STORE_CORRECTION_H_
#define EVENSHARD_SERVER_STORE_CORRECTION_H_

#include <cstdint>

#include "common/base/element_loop.h"
#include "common/config/asynchrony.h"
#include "proto/config.pb.h"

namespace evenshard {

// What is done to a stale gradient before the optimizer sees it. With the parameters w, those that
// the gradient's worker was last sent, w_sent, and g = scale * gradient, it becomes
//   DELAY_COMPENSATION           g + lambda * g * g * (w - w_sent)
//   ADAPTIVE_DELAY_COMPENSATION  s = 0.95 * s + 0.05 * g * g;
//                                g + lambda / sqrt(s + 1e-7) * g * g * (w - w_sent)
//       (Zheng et al. 2017, arXiv:1609.08326, DC-ASGD-c and -a, with the parameters of each worker)
//   GAP_AWARE                    g / (1 + |w - w_sent| / sqrt(s)), where each update changes w by d
//                                and s to 0.95 * s + 0.05 * d * d, but the first such d to d * d
//       (after Barkai et al. 2020, arXiv:1909.10802, element by element. Their c is the largest
//       learning rate times the root of the mean square of steps without the rate. Here the steps
//       have theirs, so that the rate may also come with the gradients)
//
// Element by element, so that cuts do not matter, and without memory of its own: the caller keeps
// s, which must be zero at first. Immutable and thread-safe.
class Correction {
 public:
  Correction(Asynchrony::Correction kind, float lambda) : kind_(kind), lambda_(lambda) {}

  // Whether there is an s.
  bool has_mean_square() const { return HasMeanSquare(kind_); }
  // Whether TakeSteps must be called after each update, corrected or not.
  bool needs_steps() const { return kind_ == Asynchrony::GAP_AWARE; }

  // Writes the corrected gradient. All arrays have `n` elements; `gradient` may have any alignment.
  // `sent` is null if it is `parameters` or not known: then g itself is written.
  void Correct(const UnalignedFloat* gradient, float scale, const float* parameters,
               const float* sent, float* mean_square, float* corrected, int64_t n) const;

  // Takes in an update that has changed the parameters from `before` to `after`.
  static void TakeSteps(const float* before, const float* after, float* mean_square, int64_t n);

 private:
  const Asynchrony::Correction kind_;
  const float lambda_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_CORRECTION_H_
