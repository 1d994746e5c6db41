#ifndef PS_COMMON_DEVICE_PROFILE_H_
#define PS_COMMON_DEVICE_PROFILE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/model.h"
#include "proto/config.pb.h"

namespace ps {

// How long a device computes on one layer of one batch.
struct LayerTime {
  double forward_seconds = 0;
  double backward_seconds = 0;  // the gradients of its tensors and of its input
};

// The times of the model's layers, in the order of Model::layers(), on emulated.device,
// times emulated.time_dilation. What a model shrinks (ModelSpec.shrink) is not looked at.
//
// A convolution or a linear layer takes 2 FLOPs per multiply-accumulate over the device's
// rate; any other layer takes the bytes of its input and output over the device's memory
// bandwidth. The backward pass takes twice the forward pass. The rate is what makes VGG-16
// as fast as it was measured on the device.
//
// Errors: INVALID_ARGUMENT for an unknown device; the message says which there are.
absl::StatusOr<std::vector<LayerTime>> LayerTimes(const Model& model,
                                                  const Compute::Emulated& emulated,
                                                  int batch_size);

}  // namespace ps

#endif  // PS_COMMON_DEVICE_PROFILE_H_
