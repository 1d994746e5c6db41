#ifndef EVENSHARD_COMMON_OPTIMIZER_OPTIMIZER_H_
#define EVENSHARD_COMMON_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "common/base/element_loop.h"
#include "common/wire/hyperparameters.h"
#include "proto/config.pb.h"

namespace evenshard {

// The most arrays of state that a rule has.
inline constexpr int kMaxSlots = 3;

// A run of parameters with the state and the gradient sum that belong to them. All arrays have as
// many elements as `parameters`.
struct OptimizerSpan {
  absl::Span<float> parameters;
  float* slots[kMaxSlots] = {};  // state; the first Optimizer::slots() are used
  const float* sum = nullptr;    // sum of other gradients, or null if there are none
};

// The numbers of a rule in one update.
struct UpdateNumbers {
  double learning_rate = 0;  // in double, so that the schedule is exact
  float momentum = 0;
  float beta1 = 0;
  float beta2 = 0;
  float weight_decay = 0;
  float epsilon = 0;
  int32_t delay = 1;
};

// The rule that updates parameters by a gradient. It works element by element, so applying it to
// a range in pieces gives the same bits as applying it at once. Immutable and thread-safe. The
// caller owns the state, which must be zero before the first update.
//
// With g = clip(scale * (sum + gradient)) + weight_decay * w, and with the learning rate lr that
// the schedule gives for the iteration, the rules are, in one pass over memory:
//   SGD       w -= lr * g
//   MOMENTUM  v = momentum * v + g;  w -= lr * v                (Polyak 1964)
//   NESTEROV  v = momentum * v + g;  w -= lr * (g + momentum * v)
//             (Sutskever et al. 2013, in the form of PyTorch's SGD)
//   ADAM      Kingma and Ba 2015, algorithm 1, with bias correction
//   ADAGRAD   s += g * g;  w -= lr * g / (sqrt(s) + epsilon)    (Duchi et al. 2011)
//   ADAMW     w *= 1 - lr * weight_decay, then ADAM with a g that has no weight decay
//             (Loshchilov and Hutter 2019, algorithm 2, in the form of PyTorch's AdamW)
//   RMSPROP   s = beta2 * s + (1 - beta2) * g * g;  w -= lr * g / (sqrt(s) + epsilon)
//             (Tieleman and Hinton 2012, lecture 6.5, in the form of PyTorch's RMSprop, whose alpha
//             is beta2)
//   RMSPROP_MOMENTUM  s as in RMSPROP;  v = momentum * v + g / (sqrt(s) + epsilon);  w -= lr * v
//   ADAM_AMSGRAD, ADAMW_AMSGRAD  ADAM and ADAMW with the largest second moment so far in place of
//             the last one (Reddi et al. 2018, algorithm 2, with PyTorch's bias correction)
//   LION      w *= 1 - lr * weight_decay, then with a g that has no weight decay
//             w -= lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g
//             (Chen et al. 2023, algorithm 2)
//   MEAN      w = g, without weight decay
//   DELAYED_NESTEROV  with n = delay, d += g;  at every n-th update v = momentum * v + d / n,
//             w -= lr * (g / n + momentum * v) and d = 0;  at the others w -= lr * g / n
//             (Liu et al. 2024, algorithm 3 with c = 0)
class Optimizer {
 public:
  // Gradient elements are clipped to [-clip_value, clip_value]; 0 turns clipping off. What the
  // config has for single tensors does not count here (see common/config/optimizer_rules.h).
  // REQUIRES: the config has been checked.
  static std::unique_ptr<const Optimizer> Create(const OptimizerConfig& config, float clip_value);
  virtual ~Optimizer() = default;

  // The floats of state per parameter, from 0 (SGD) to kMaxSlots (ADAM_AMSGRAD).
  virtual int slots() const = 0;

  // Updates `span` by as many gradient elements, which may have any alignment. `scale` turns a sum
  // of gradients into their mean. `update`, counted from 1, is the number of this update of these
  // elements.
  virtual void Apply(const OptimizerSpan& span, const UnalignedFloat* gradient, float scale,
                     const UpdateNumbers& numbers, int64_t update) const = 0;

  // Returns the config's numbers at an iteration, counted from 0, or in their place those that are
  // given.
  UpdateNumbers NumbersOf(int64_t iteration, const Hyperparameters& given = {}) const;

 protected:
  Optimizer(const OptimizerConfig& config, float clip_value);

  double LearningRate(int64_t iteration) const;

  const OptimizerConfig config_;
  const float clip_value_;  // infinity if clipping is off
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_OPTIMIZER_OPTIMIZER_H_
