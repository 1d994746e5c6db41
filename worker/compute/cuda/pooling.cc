#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/layers.h"

namespace evenshard {
namespace {

constexpr int64_t kMaxKernel = 255;  // so that 16 bits hold a place in the window

class CudaMaxPool : public CudaLayer {
 public:
  CudaMaxPool(const CudaContext& context, const Layer& layer, CudaActivation input)
      : CudaLayer(context, std::move(input)) {
    const MaxPool2d& pool = layer.spec.max_pool();
    if (pool.kernel() > kMaxKernel) {
      throw CudaError(CudaError::Kind::kOther,
                      absl::StrCat("max_pool.kernel is ", pool.kernel(),
                                   ": the CUDA backend takes up to ", kMaxKernel));
    }
    shape_ = {context.images,      layer.input.channels,
              layer.input.height,  layer.input.width,
              layer.output.height, layer.output.width,
              pool.kernel(),       pool.has_stride() ? pool.stride() : pool.kernel(),
              pool.padding()};
    places_ = context.memory->Declare(context.images * layer.output.size() * sizeof(uint16_t));
    DeclareOutput(layer.output, input_.gradient != nullptr);
  }

  void Forward(const CudaPass& pass) override {
    kernels::MaxPool(context_.stream(), context_.type(), shape_, input_.value->data,
                     output_.value->data, static_cast<uint16_t*>(places_->data));
  }

  void Backward(const CudaPass& pass) override {
    kernels::MaxPoolGradient(context_.stream(), context_.type(), shape_,
                             static_cast<const uint16_t*>(places_->data), output_.gradient->data,
                             input_.gradient->data);
  }

 private:
  kernels::PoolShape shape_;
  CudaArrayPtr places_;  // of the maxima in their windows; Forward writes them for Backward
};

class CudaAveragePool : public CudaLayer {
 public:
  CudaAveragePool(const CudaContext& context, const Layer& layer, CudaActivation input)
      : CudaLayer(context, std::move(input)) {
    DeclareOutput(layer.output, input_.gradient != nullptr);
  }

  void Forward(const CudaPass& pass) override {
    kernels::AveragePool(context_.stream(), context_.type(), PlanesOf(input_), input_.value->data,
                         output_.value->data);
  }

  void Backward(const CudaPass& pass) override {
    kernels::AveragePoolGradient(context_.stream(), context_.type(), PlanesOf(input_),
                                 output_.gradient->data, input_.gradient->data);
  }
};

}  // namespace

std::unique_ptr<CudaLayer> MakeCudaPooling(const CudaContext& context, const Layer& layer,
                                           CudaActivation input) {
  if (layer.spec.has_global_avg_pool()) {
    return std::make_unique<CudaAveragePool>(context, layer, std::move(input));
  }
  return std::make_unique<CudaMaxPool>(context, layer, std::move(input));
}

}  // namespace evenshard
