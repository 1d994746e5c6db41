#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_DEVICE_PROFILE_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_DEVICE_PROFILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// The time that a device takes to compute one layer on one batch.
struct LayerTime {
  double forward_seconds = 0;
  double backward_seconds = 0;  // for the gradients with respect to its tensors and its input
};

// Returns the names of all devices, quoted and separated by commas, with or without that of none.
std::string KnownDevices(bool with_none = true);

// Returns the times of the model's layers on emulated.device, multiplied by
// emulated.time_dilation, in the order of Model::layers(). ModelSpec.shrink does not change them.
//
// The forward pass of a convolution or linear layer takes its FLOPs, 2 for each
// multiply-accumulate, divided by the device's rate. Any other layer takes the bytes of its inputs
// and its output, divided by the device's memory bandwidth. A backward pass takes twice as long.
// The device's rate is chosen so that VGG-16 is as fast as measured on the device.
//
// Errors: INVALID_ARGUMENT for an unknown device; the message lists the known ones.
absl::StatusOr<std::vector<LayerTime>> LayerTimes(const Model& model,
                                                  const Compute::Emulated& emulated,
                                                  int batch_size);

// Returns the emulated device in whose time workers compute: compute.pace, or compute.emulated.
const Compute::Emulated& EmulatedDeviceOf(const Compute& compute);
// The same, to change it, or null if there is none.
Compute::Emulated* MutableEmulatedDeviceOf(Compute* compute);

// Returns the device that a prediction for the config assumes: emulated.device with the backend
// EMULATED, pace.device if there is one, otherwise compute.profile; "none" if that is not given.
std::string PredictedDevice(const ClusterConfig& config);

// Returns the times that a prediction for the config assumes: those of PredictedDevice. On "none"
// layers take no time. Errors: as LayerTimes.
absl::StatusOr<std::vector<LayerTime>> PredictedLayerTimes(const Model& model,
                                                           const ClusterConfig& config);

// Says why a prediction for the config is of the exchange alone: "compute.emulated.device is ...".
// REQUIRES: none of the PredictedLayerTimes is above 0.
std::string NoComputeReason(const ClusterConfig& config);

// Returns the factor for these times in the worker of that rank.
double WorkerSlowdown(const Compute::Emulated& emulated, int rank);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_DEVICE_PROFILE_H_
