#include "worker/compute/cpu_pooling.h"

#include <optional>
#include <utility>

namespace ps {
namespace {

using dnnl::memory;
using ForwardDescription = dnnl::pooling_forward::primitive_desc;
using BackwardDescription = dnnl::pooling_backward::primitive_desc;

class CpuPooling : public CpuLayer {
 public:
  CpuPooling(CpuDevice* device, const Layer& layer, Activation input) : CpuLayer(std::move(input)) {
    const MaxPool2d& pool = layer.spec.max_pool();
    const int64_t stride = pool.has_stride() ? pool.stride() : pool.kernel();
    const memory::dims kernel = {pool.kernel(), pool.kernel()};
    const memory::dims strides = {stride, stride};
    const memory::dims padding = {pool.padding(), pool.padding()};
    const memory::desc source = input_.value.get_desc();
    const memory::desc any_output = AnyFormat(
        {source.dims()[0], layer.output.channels, layer.output.height, layer.output.width});
    const ForwardDescription forward(
        {dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max, source, any_output,
         strides, kernel, padding, padding},
        device->attributes(), device->engine());
    forward_.emplace(device, forward);
    places_ = device->Allocate(forward.workspace_desc());
    output_.value = device->Allocate(forward.dst_desc());
    if (!input_.gradient) return;
    output_.gradient = device->Unallocated(forward.dst_desc());
    backward_.emplace(device,
                      BackwardDescription({dnnl::algorithm::pooling_max, source, forward.dst_desc(),
                                           strides, kernel, padding, padding},
                                          device->attributes(), device->engine(), forward));
  }

  void Forward(const ForwardPass& pass) override {
    forward_->Run({{DNNL_ARG_SRC, input_.value},
                   {DNNL_ARG_DST, output_.value},
                   {DNNL_ARG_WORKSPACE, places_}});
  }

  void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) override {
    backward_->Run({{DNNL_ARG_DIFF_DST, output_.gradient},
                    {DNNL_ARG_WORKSPACE, places_},
                    {DNNL_ARG_DIFF_SRC, input_.gradient}});
  }

 private:
  std::optional<CpuOperation> forward_;
  std::optional<CpuOperation> backward_;
  memory places_;  // of the maxima in their windows, from Forward for Backward
};

}  // namespace

std::unique_ptr<CpuLayer> MakeCpuPooling(CpuDevice* device, const Layer& layer, Activation input) {
  return std::make_unique<CpuPooling>(device, layer, std::move(input));
}

}  // namespace ps
