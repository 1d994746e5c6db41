#ifndef PS_SERVER_OPTIMIZER_H_
#define PS_SERVER_OPTIMIZER_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "common/unaligned.h"
#include "proto/config.pb.h"

namespace ps {

// The parameters of some elements, and what an update needs beside them. All have the same
// number of elements.
struct OptimizerSpan {
  absl::Span<float> parameters;
  float* slots[2] = {nullptr, nullptr};  // state: the first Optimizer::slots() are used
  const float* sum = nullptr;            // of other gradients, added to the update's own
};

// The rule that turns a gradient into an update, element by element: applying it to
// a range in pieces gives the same bits as in one go. Immutable and thread-safe; the
// state lives with the caller, zero at the start.
//
// With g = clip(scale * (sum + gradient)) + weight_decay * w and the learning rate lr of the
// schedule at the iteration, all in one pass over memory:
//   SGD       w -= lr * g
//   MOMENTUM  v = momentum * v + g;  w -= lr * v                (Polyak 1964)
//   NESTEROV  v = momentum * v + g;  w -= lr * (g + momentum * v)
//             (Sutskever et al. 2013, in the form of PyTorch's SGD)
//   ADAM      Kingma and Ba 2015, algorithm 1, with bias correction
//   ADAGRAD   s += g * g;  w -= lr * g / (sqrt(s) + epsilon)    (Duchi et al. 2011)
class Optimizer {
 public:
  // `clip_value`: 0 is off. The config must have been checked.
  static std::unique_ptr<const Optimizer> Create(const OptimizerConfig& config, float clip_value);
  virtual ~Optimizer() = default;

  // Floats of state per parameter: 0 (SGD), 1 or 2.
  virtual int slots() const = 0;

  // Applies one update to `span` from as many gradient elements at `gradient`, which
  // may have any alignment. `scale` makes the mean of a sum. `iteration` (from 0)
  // selects the learning rate, `update` (from 1) counts the updates of these elements.
  virtual void Apply(const OptimizerSpan& span, const UnalignedFloat* gradient, float scale,
                     int64_t iteration, int64_t update) const = 0;

  // The learning rate at an iteration, in double for exactness of the schedule.
  double LearningRate(int64_t iteration) const;

 protected:
  Optimizer(const OptimizerConfig& config, float clip_value);

  const OptimizerConfig config_;
  const float clip_value_;  // infinity where clipping is off
};

}  // namespace ps

#endif  // PS_SERVER_OPTIMIZER_H_
