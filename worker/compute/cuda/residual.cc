#include "worker/compute/cuda/residual.h"

#include <utility>

#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/kernels.h"

namespace evenshard {
namespace {

class CudaResidualEnd : public CudaLayer {
 public:
  CudaResidualEnd(const CudaContext& context, CudaActivation body, CudaActivation shortcut)
      : CudaLayer(context, std::move(body)), shortcut_(std::move(shortcut)) {
    DeclareOutput(input_.shape, input_.gradient != nullptr || shortcut_.gradient != nullptr);
  }

  void Forward(const CudaPass& pass) override {
    kernels::AddRelu(context_.stream(), context_.type(), PlanesOf(input_).size(),
                     input_.value->data, shortcut_.value->data, output_.value->data);
  }

  // Both inputs get the same gradient, but in separate memory: their layers may work in place.
  void Backward(const CudaPass& pass) override {
    for (const CudaArrayPtr& gradient : {input_.gradient, shortcut_.gradient}) {
      if (gradient == nullptr) continue;
      kernels::ReluGradient(context_.stream(), context_.type(), PlanesOf(input_).size(),
                            output_.value->data, output_.gradient->data, gradient->data);
    }
  }

  std::vector<CudaArrayPtr> gradients() const override {
    return {input_.gradient, shortcut_.gradient, output_.gradient};
  }

 private:
  const CudaActivation shortcut_;
};

}  // namespace

CudaFork::CudaFork(const CudaContext& context, CudaActivation input,
                   const std::vector<bool>& overwritten)
    : CudaLayer(context, std::move(input)) {
  output_ = input_;
  for (const bool needs_copy : overwritten) {
    CudaActivation& branch = branches_.emplace_back(input_);
    if (needs_copy) branch.value = context.DeclareValues(input_.shape);
    if (input_.gradient != nullptr) branch.gradient = context.DeclareGradients(input_.shape);
  }
}

void CudaFork::Forward(const CudaPass& pass) {
  for (const CudaActivation& branch : branches_) {
    if (branch.value == input_.value) continue;
    Check(cudaMemcpyAsync(branch.value->data, input_.value->data, input_.value->bytes,
                          cudaMemcpyDeviceToDevice, context_.stream()),
          "copying an activation");
  }
}

void CudaFork::Backward(const CudaPass& pass) {
  const void* sum = branches_[0].gradient->data;
  for (size_t i = 1; i < branches_.size(); ++i) {
    kernels::Add(context_.stream(), context_.type(), PlanesOf(input_).size(), sum,
                 branches_[i].gradient->data, input_.gradient->data);
    sum = input_.gradient->data;
  }
}

std::vector<CudaArrayPtr> CudaFork::gradients() const {
  std::vector<CudaArrayPtr> gradients = {input_.gradient};
  for (const CudaActivation& branch : branches_) gradients.push_back(branch.gradient);
  return gradients;
}

std::unique_ptr<CudaLayer> MakeCudaResidualEnd(const CudaContext& context, CudaActivation body,
                                               CudaActivation shortcut) {
  return std::make_unique<CudaResidualEnd>(context, std::move(body), std::move(shortcut));
}

}  // namespace evenshard
