#include <string>
#include <utility>

#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/layers.h"
#include "worker/compute/dropout_stream.h"

namespace evenshard {
namespace {

class CudaRelu : public CudaLayer {
 public:
  CudaRelu(const CudaContext& context, CudaActivation input)
      : CudaLayer(context, std::move(input)) {
    output_ = input_;
  }

  void Forward(const CudaPass& pass) override {
    kernels::AddBias(context_.stream(), context_.type(), RowsOf(input_), input_.shape.channels,
                     /*bias=*/nullptr, /*relu=*/true, output_.value->data);
  }

  void Backward(const CudaPass& pass) override {
    kernels::ReluGradient(context_.stream(), context_.type(), PlanesOf(input_).size(),
                          output_.value->data, output_.gradient->data, input_.gradient->data);
  }
};

class CudaDropout : public CudaLayer {
 public:
  CudaDropout(const CudaContext& context, const Layer& layer, uint64_t seed, int rank,
              CudaActivation input)
      : CudaLayer(context, std::move(input)),
        probability_(layer.spec.dropout().p()),
        seed_(seed),
        layer_(layer.name),
        rank_(rank) {
    output_ = input_;
  }

  void Forward(const CudaPass& pass) override {
    if (!pass.training) return;
    stream_ = DropoutStream(layer_, rank_, pass.iteration);
    Multiply(output_.value->data);
  }

  void Backward(const CudaPass& pass) override { Multiply(output_.gradient->data); }

 private:
  void Multiply(void* values) const {
    kernels::Dropout(context_.stream(), context_.type(), PlanesOf(input_), probability_, seed_,
                     stream_, values);
  }

  const float probability_;
  const uint64_t seed_;
  const std::string layer_;
  const int rank_;
  uint64_t stream_ = 0;  // of random numbers; Forward chooses it for Backward
};

}  // namespace

std::unique_ptr<CudaLayer> MakeCudaRelu(const CudaContext& context, CudaActivation input) {
  return std::make_unique<CudaRelu>(context, std::move(input));
}

std::unique_ptr<CudaLayer> MakeCudaDropout(const CudaContext& context, const Layer& layer,
                                           uint64_t seed, int rank, CudaActivation input) {
  return std::make_unique<CudaDropout>(context, layer, seed, rank, std::move(input));
}

}  // namespace evenshard
