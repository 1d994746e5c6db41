#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/wire/non_finite.h"
#include "worker/compute/cpu/layers.h"

namespace evenshard {
namespace {

using dnnl::memory;

struct Windows {
  dnnl::algorithm algorithm;
  memory::dims kernel, strides, padding;
};

Windows WindowsOf(const Layer& layer) {
  if (layer.spec.has_global_avg_pool()) {
    return {.algorithm = dnnl::algorithm::pooling_avg_exclude_padding,
            .kernel = {layer.input.height, layer.input.width},
            .strides = {1, 1},
            .padding = {0, 0}};
  }
  const MaxPool2d& pool = layer.spec.max_pool();
  const int64_t stride = pool.has_stride() ? pool.stride() : pool.kernel();
  return {.algorithm = dnnl::algorithm::pooling_max,
          .kernel = {pool.kernel(), pool.kernel()},
          .strides = {stride, stride},
          .padding = {pool.padding(), pool.padding()}};
}

// Returns all elements, in the order of the memory's own format.
absl::Span<float> Elements(const memory& memory) {
  return {Floats(memory), memory.get_desc().get_size() / sizeof(float)};
}

bool AllFinite(absl::Span<const float> values) {
  return FindNonFinite(values.data(), static_cast<int64_t>(values.size())) < 0;
}

class CpuPooling : public CpuLayer {
 public:
  CpuPooling(CpuDevice* device, const Layer& layer, Activation input)
      : CpuLayer(std::move(input)), device_(device) {
    const auto [algorithm, kernel, strides, padding] = WindowsOf(layer);
    const memory::desc source = input_.value.get_desc();
    const memory::desc any_output = AnyFormat(
        {source.dims()[0], layer.output.channels, layer.output.height, layer.output.width});
    const auto forward = device->Describe<dnnl::pooling_forward>(
        {dnnl::prop_kind::forward_training, algorithm, source, any_output, strides, kernel, padding,
         padding});
    forward_.emplace(device, forward);
    if (algorithm == dnnl::algorithm::pooling_max) {
      places_ = device->Allocate(forward.workspace_desc());
    }
    output_.value = device->Allocate(forward.dst_desc());
    if (!input_.gradient) return;
    output_.gradient = device->Unallocated(forward.dst_desc());
    backward_.emplace(
        device,
        device->Describe<dnnl::pooling_backward>(
            {algorithm, source, forward.dst_desc(), strides, kernel, padding, padding}, forward));
  }

  void Forward(const ForwardPass& pass) override {
    if (places_ && !AllFinite(Elements(input_.value))) return PoolWithNan();
    Run(*forward_, {{DNNL_ARG_SRC, input_.value}, {DNNL_ARG_DST, output_.value}});
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    Run(*backward_, {{DNNL_ARG_DIFF_DST, output_.gradient}, {DNNL_ARG_DIFF_SRC, input_.gradient}});
  }

 private:
  // oneDNN's max pooling ignores NaN, and a training that has diverged would go unnoticed. This
  // function pools twice, with a number in the place of each NaN: first to find the windows that
  // have one, then, with infinity, for the other windows' maxima and for all places.
  void PoolWithNan() const {
    const memory input = device_->Allocate(input_.value.get_desc());
    const memory has_nan = device_->Allocate(output_.value.get_desc());
    const auto replace = [&](const auto& replaced) {
      absl::c_transform(Elements(input_.value), Elements(input).begin(), replaced);
    };
    replace([](float value) { return std::isnan(value) ? 1.0f : 0.0f; });
    Run(*forward_, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, has_nan}});
    replace([](float value) {
      return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
    });
    Run(*forward_, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, output_.value}});

    const absl::Span<float> output = Elements(output_.value);
    absl::c_transform(output, Elements(has_nan), output.begin(), [](float maximum, float found) {
      return found > 0 ? std::numeric_limits<float>::quiet_NaN() : maximum;
    });
  }

  void Run(const CpuOperation& operation, CpuArguments arguments) const {
    if (places_) arguments.emplace(DNNL_ARG_WORKSPACE, places_);
    operation.Run(std::move(arguments));
  }

  CpuDevice* const device_;
  std::optional<CpuOperation> forward_;
  std::optional<CpuOperation> backward_;
  // The places of the maxima in their windows, which Forward writes for Backward. Empty for
  // averages.
  memory places_;
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuPooling(CpuDevice* device, const Layer& layer, Activation input) {
  return std::make_unique<CpuPooling>(device, layer, std::move(input));
}

}  // namespace evenshard
