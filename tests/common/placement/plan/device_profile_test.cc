#include "common/placement/plan/device_profile.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/placement/plan/model_fixture.h"

namespace evenshard {
namespace {

std::vector<LayerTime> Times(const Model& model, const std::string& device, double dilation,
                             int batch_size) {
  Compute::Emulated emulated;
  emulated.set_device(device);
  emulated.set_time_dilation(dilation);
  absl::StatusOr<std::vector<LayerTime>> times = LayerTimes(model, emulated, batch_size);
  if (!times.ok()) FAIL(times.status());
  REQUIRE(times->size() == model.layers().size());
  return *std::move(times);
}

double Total(const std::vector<LayerTime>& times) {
  double total = 0;
  for (const LayerTime& time : times) total += time.forward_seconds + time.backward_seconds;
  return total;
}

TEST_CASE("VGG-16 takes the time that was measured on each device") {
  const Model vgg16 = ModelOf("builtin: 'vgg16'");
  CHECK(Total(Times(vgg16, "rtx_2080_ti", 1, 16)) == Approx(90.8e-3));
  CHECK(Total(Times(vgg16, "cpu_epyc_2_threads", 1, 8)) == Approx(4));
}

TEST_CASE("layers take time by their FLOPs, and those without by the bytes they move") {
  const Model model = ModelOf(R"(
    input { channels: 3 height: 8 width: 8 }
    layer { name: "c" conv { out_channels: 6 kernel: 3 padding: 1 } }
    layer { relu {} }
    layer { max_pool { kernel: 2 } }
    layer { name: "f" linear { out_features: 1728 } })");
  const std::vector<LayerTime> times = Times(model, "rtx_2080_ti", 1, 1);
  // c has 6 * 8 * 8 * 3 * 3 * 3 = 10,368 multiply-accumulates, f has 6 * 4 * 4 * 1,728 = 165,888.
  CHECK(times[3].forward_seconds == Approx(16 * times[0].forward_seconds));
  CHECK(times[1].forward_seconds == Approx(2 * 384 * 4 / 616e9));
  CHECK(times[2].forward_seconds == Approx((384 + 96) * 4 / 616e9));
  for (const LayerTime& time : times) {
    CHECK(time.backward_seconds == Approx(2 * time.forward_seconds));
  }
}

TEST_CASE("residual blocks and batch norms have times too") {
  const Model resnet152 = ModelOf("builtin: 'resnet152'");
  const std::vector<LayerTime> times = Times(resnet152, "rtx_2080_ti", 1, 16);
  for (const LayerTime& time : times) REQUIRE(time.forward_seconds > 0);
  // The source of the VGG-16 figure measured 191 ms here. The profile gives less, because it leaves
  // out the launch of many small kernels, among other things.
  CHECK(Total(times) > 0.07);
  CHECK(Total(times) < 0.191);
}

TEST_CASE("times grow with the batch and the dilation, and do not shrink with the tensors") {
  const std::string text = "builtin: 'vgg16' ";
  const double once = Total(Times(ModelOf(text), "rtx_2080_ti", 1, 1));
  CHECK(Total(Times(ModelOf(text), "rtx_2080_ti", 1, 32)) == Approx(32 * once));
  CHECK(Total(Times(ModelOf(text), "rtx_2080_ti", 10, 1)) == Approx(10 * once));
  CHECK(Total(Times(ModelOf(text + "shrink: 64"), "rtx_2080_ti", 1, 1)) == once);
}

TEST_CASE("the device none takes no time") {
  CHECK(Total(Times(ModelOf("builtin: 'vgg16'"), "none", 10, 32)) == 0);
}

TEST_CASE("a prediction takes the emulated device, or else the profile") {
  const Model model = ModelOf("builtin: 'mnist_mlp'");
  ClusterConfig config;
  config.mutable_training()->set_batch_size(3);
  Compute& compute = *config.mutable_compute();
  const auto predicted = [&] { return Total(*PredictedLayerTimes(model, config)); };

  compute.set_backend(Compute::EMULATED);
  CHECK(PredictedDevice(config) == "none");
  CHECK(predicted() == 0);
  CHECK(NoComputeReason(config) == "compute.emulated.device is \"none\"");
  compute.mutable_emulated()->set_device("rtx_2080_ti");
  compute.mutable_emulated()->set_time_dilation(2);
  CHECK(PredictedDevice(config) == "rtx_2080_ti");
  CHECK(predicted() == Total(Times(model, "rtx_2080_ti", 2, 3)));

  compute.set_backend(Compute::CUDA);
  CHECK(PredictedDevice(config) == "none");
  CHECK(predicted() == 0);
  CHECK(NoComputeReason(config) == "compute.backend is CUDA, and compute.profile is not given");
  compute.set_profile("none");
  CHECK(NoComputeReason(config) == "compute.profile is \"none\"");
  compute.set_profile("rtx_2080_ti");
  CHECK(PredictedDevice(config) == "rtx_2080_ti");
  CHECK(predicted() == Total(Times(model, "rtx_2080_ti", 1, 3)));
}

TEST_CASE("predicted times are those of the emulated device, or of the profile, or none") {
  const Model vgg16 = ModelOf("builtin: 'vgg16'");
  const auto predicted = [&](const std::string& text) {
    ClusterConfig config;
    REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &config));
    const absl::StatusOr<std::vector<LayerTime>> times = PredictedLayerTimes(vgg16, config);
    INFO(times.status());
    REQUIRE(times.ok());
    return Total(*times);
  };
  const std::string batch = "training { batch_size: 16 } ";
  const std::string emulated = "emulated { device: 'rtx_2080_ti' time_dilation: 10 } ";
  CHECK(predicted(batch + "compute { backend: EMULATED " + emulated + "}") == Approx(0.908));
  CHECK(predicted(batch + "compute { profile: 'rtx_2080_ti' }") == Approx(90.8e-3));
  CHECK(predicted(batch + "compute { backend: CUDA profile: 'rtx_2080_ti' }") == Approx(90.8e-3));
  CHECK(predicted(batch + "compute { profile: 'none' }") == 0);
  CHECK(predicted(batch) == 0);
  ClusterConfig unknown;
  unknown.mutable_compute()->set_profile("rtx_9");
  CHECK(PredictedLayerTimes(vgg16, unknown).status() ==
        absl::InvalidArgumentError(absl::StrCat("is \"rtx_9\", allowed: ", KnownDevices())));
}

TEST_CASE("known devices are listed, beginning with none") {
  CHECK(KnownDevices() == "\"none\", \"rtx_2080_ti\", \"cpu_epyc_2_threads\"");
}

TEST_CASE("an unknown device is an error that lists the known ones") {
  Compute::Emulated emulated;
  emulated.set_device("rtx_9");
  const auto times = LayerTimes(ModelOf("builtin: 'mnist_mlp'"), emulated, 1);
  CHECK(times.status() ==
        absl::InvalidArgumentError("is \"rtx_9\", allowed: \"none\", \"rtx_2080_ti\", "
                                   "\"cpu_epyc_2_threads\""));
}

}  // namespace
}  // namespace evenshard
