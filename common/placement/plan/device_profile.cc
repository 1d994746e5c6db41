#include "common/placement/plan/device_profile.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

constexpr char kNoDevice[] = "none";
constexpr double kBackwardOverForward = 2;

struct Device {
  absl::string_view name;
  double vgg16_images_per_second;  // forward and backward passes in float32
  double memory_bytes_per_second;
};

constexpr Device kDevices[] = {
    // VGG-16 takes 90.8 ms for 16 images with TensorFlow 1.12, CUDA 10.0 and cuDNN 7.4, of which
    // 28.8 ms are the forward pass (github.com/u39kun/deep-learning-benchmark, README, 2019). The
    // memory bandwidth is from NVIDIA's data sheet. The rate that follows, about 17 TFLOP/s, is
    // above the card's 13.4, because Winograd convolutions need fewer multiplications than are
    // counted here.
    {"rtx_2080_ti", 16 / 90.8e-3, 616e9},
    // This project's CPU backend on 2 threads of an AMD EPYC computes about 2 images/s at batch 8.
    // The memory bandwidth is that of memcpy in docs/performance.md. Both are round figures from
    // one shared machine.
    {"cpu_epyc_2_threads", 2, 25e9},
};

double Flops(const Layer& layer) {
  if (layer.spec.has_linear()) return 2.0 * layer.input.size() * layer.output.size();
  if (!layer.spec.has_conv()) return 0;
  const double kernel = layer.spec.conv().kernel();
  return 2.0 * layer.output.size() * layer.input.channels * kernel * kernel;
}

double Bytes(const Layer& layer) {
  if (Flops(layer) > 0) return 0;
  return sizeof(float) * (layer.inputs.size() * layer.input.size() + layer.output.size());
}

double Sum(const Model& model, double (*of)(const Layer&)) {
  double sum = 0;
  for (const Layer& layer : model.layers()) sum += of(layer);
  return sum;
}

absl::StatusOr<double> FlopsPerSecond(const Device& device) {
  ModelSpec spec;
  spec.set_builtin("vgg16");
  ASSIGN_OR_RETURN(const Model vgg16, Model::Create(spec));
  const double forward_seconds = 1 / device.vgg16_images_per_second / (1 + kBackwardOverForward);
  return Sum(vgg16, Flops) / (forward_seconds - Sum(vgg16, Bytes) / device.memory_bytes_per_second);
}

// Whether a run takes an emulated device's time, so that a prediction need not assume one.
bool IsEmulatedInTime(const Compute& compute) {
  return compute.backend() == Compute::EMULATED || compute.has_pace();
}

}  // namespace

std::string KnownDevices(bool with_none) {
  std::vector<std::string> known;
  if (with_none) known.emplace_back(kNoDevice);
  for (const Device& device : kDevices) known.emplace_back(device.name);
  return absl::StrCat("\"", absl::StrJoin(known, "\", \""), "\"");
}

absl::StatusOr<std::vector<LayerTime>> LayerTimes(const Model& model,
                                                  const Compute::Emulated& emulated,
                                                  int batch_size) {
  std::vector<LayerTime> times(model.layers().size());
  if (emulated.device() == kNoDevice) return times;
  for (const Device& device : kDevices) {
    if (emulated.device() != device.name) continue;
    ASSIGN_OR_RETURN(const double rate, FlopsPerSecond(device));
    for (size_t i = 0; i < times.size(); ++i) {
      const Layer& layer = model.layers()[i];
      times[i].forward_seconds =
          emulated.time_dilation() * batch_size *
          (Flops(layer) / rate + Bytes(layer) / device.memory_bytes_per_second);
      times[i].backward_seconds = kBackwardOverForward * times[i].forward_seconds;
    }
    return times;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("is \"", absl::CEscape(emulated.device()), "\", allowed: ", KnownDevices()));
}

const Compute::Emulated& EmulatedDeviceOf(const Compute& compute) {
  return compute.has_pace() ? compute.pace() : compute.emulated();
}

Compute::Emulated* MutableEmulatedDeviceOf(Compute* compute) {
  if (compute->has_pace()) return compute->mutable_pace();
  return compute->has_emulated() ? compute->mutable_emulated() : nullptr;
}

std::string PredictedDevice(const ClusterConfig& config) {
  const Compute& compute = config.compute();
  if (IsEmulatedInTime(compute)) return EmulatedDeviceOf(compute).device();
  return compute.has_profile() ? compute.profile() : kNoDevice;
}

absl::StatusOr<std::vector<LayerTime>> PredictedLayerTimes(const Model& model,
                                                           const ClusterConfig& config) {
  Compute::Emulated device;
  if (IsEmulatedInTime(config.compute())) device = EmulatedDeviceOf(config.compute());
  device.set_device(PredictedDevice(config));
  return LayerTimes(model, device, config.training().batch_size());
}

std::string NoComputeReason(const ClusterConfig& config) {
  const Compute& compute = config.compute();
  if (IsEmulatedInTime(compute)) {
    return absl::StrCat(compute.has_pace() ? "compute.pace" : "compute.emulated", ".device is \"",
                        EmulatedDeviceOf(compute).device(), "\"");
  }
  if (compute.has_profile()) return absl::StrCat("compute.profile is \"", compute.profile(), "\"");
  return absl::StrCat("compute.backend is ", Compute::Backend_Name(compute.backend()),
                      ", and compute.profile is not given");
}

double WorkerSlowdown(const Compute::Emulated& emulated, int rank) {
  return rank < emulated.worker_slowdown_size() ? emulated.worker_slowdown(rank) : 1;
}

}  // namespace evenshard
