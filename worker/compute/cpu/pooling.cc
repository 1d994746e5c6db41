#include <optional>
#include <utility>

#include "worker/compute/cpu/layers.h"

namespace ps {
namespace {

using dnnl::memory;
using ForwardDescription = dnnl::pooling_forward::primitive_desc;
using BackwardDescription = dnnl::pooling_backward::primitive_desc;

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

// Note that oneDNN's max pooling ignores NaN, where the CUDA backend's passes it on.
class CpuPooling : public CpuLayer {
 public:
  CpuPooling(CpuDevice* device, const Layer& layer, Activation input) : CpuLayer(std::move(input)) {
    const auto [algorithm, kernel, strides, padding] = WindowsOf(layer);
    const memory::desc source = input_.value.get_desc();
    const memory::desc any_output = AnyFormat(
        {source.dims()[0], layer.output.channels, layer.output.height, layer.output.width});
    const ForwardDescription forward({dnnl::prop_kind::forward_training, algorithm, source,
                                      any_output, strides, kernel, padding, padding},
                                     device->attributes(), device->engine());
    forward_.emplace(device, forward);
    if (algorithm == dnnl::algorithm::pooling_max) {
      places_ = device->Allocate(forward.workspace_desc());
    }
    output_.value = device->Allocate(forward.dst_desc());
    if (!input_.gradient) return;
    output_.gradient = device->Unallocated(forward.dst_desc());
    backward_.emplace(device, BackwardDescription({algorithm, source, forward.dst_desc(), strides,
                                                   kernel, padding, padding},
                                                  device->attributes(), device->engine(), forward));
  }

  void Forward(const ForwardPass& pass) override {
    Run(*forward_, {{DNNL_ARG_SRC, input_.value}, {DNNL_ARG_DST, output_.value}});
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    Run(*backward_, {{DNNL_ARG_DIFF_DST, output_.gradient}, {DNNL_ARG_DIFF_SRC, input_.gradient}});
  }

 private:
  void Run(const CpuOperation& operation, CpuArguments arguments) const {
    if (places_) arguments.emplace(DNNL_ARG_WORKSPACE, places_);
    operation.Run(std::move(arguments));
  }

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

}  // namespace ps
