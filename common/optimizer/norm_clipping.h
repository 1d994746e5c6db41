#ifndef EVENSHARD_COMMON_OPTIMIZER_NORM_CLIPPING_H_
#define EVENSHARD_COMMON_OPTIMIZER_NORM_CLIPPING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/optimizer/square_sum.h"
#include "common/placement/model/model.h"

namespace evenshard {

// Clipping of the mean gradient by its L2 norm over all trained parameters of the model
// (update.clip_global_norm under SYNC). The norm is that of the mean as the optimizer would get it,
// in float32, before weight decay and before the elements are clipped. Running statistics and
// buffers are not clipped and do not count. Each process squares what it has of the mean, and the
// sums are added up in any order.

// The way in which all processes of a run square and add up. REQUIRES: clip_global_norm > 0.
SquareRule NormRuleOf(double clip_global_norm, const Model& model);

// By what the mean gradient with this squared norm is multiplied: min(1, clip_global_norm / (norm +
// 1e-6)), as in torch.nn.utils.clip_grad_norm_.
float ClipCoefficient(double clip_global_norm, double squared_norm);

// Errors: OUT_OF_RANGE, of the kind RUN_FAILED, if the squared norm of an iteration is not finite.
absl::Status CheckNorm(double clip_global_norm, uint64_t iteration, double squared_norm);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_OPTIMIZER_NORM_CLIPPING_H_
