#include "tests/worker/compute/cuda/cuda_net.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

namespace evenshard {

std::unique_ptr<CudaBackend> MakeCudaBackend(const Model& model,
                                             const CudaBackend::Options& options) {
  absl::StatusOr<std::unique_ptr<CudaBackend>> backend = CudaBackend::Create(model, options);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

CudaNet::CudaNet(const TestNet& net, CudaBackend::Options options)
    : net_(net), parameters_(net.parameters.size()), gradients_(net.parameters.size()) {
  if (options.device.workspace_bytes == 0) options.device.workspace_bytes = size_t{64} << 20;
  options.device.timed_engines = 1;  // cuDNN takes up to a second to make an engine
  backend_ = MakeCudaBackend(net.model, options);
  const absl::Status used =
      backend_->UseBuffers({.parameters = parameters_, .gradients = absl::MakeSpan(gradients_)});
  INFO(used);
  REQUIRE(used.ok());
  Refresh();
}

void CudaNet::Refresh() {
  std::copy(net_.parameters.begin(), net_.parameters.end(), parameters_.begin());
  backend_->ParametersWritten(0, static_cast<int64_t>(parameters_.size()));
}

Step CudaNet::Train(const Batch& batch, int64_t iteration) {
  LayerHooks nothing;
  return Train(batch, iteration, nothing);
}

Step CudaNet::Train(const Batch& batch, int64_t iteration, LayerHooks& hooks) {
  Refresh();
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  const auto result =
      backend_->ForwardBackward(batch, parameters_, iteration, absl::MakeSpan(gradients_), hooks);
  INFO(result.status());
  REQUIRE(result.ok());
  return {*result, gradients_};
}

BatchResult CudaNet::Evaluate(const Batch& batch) {
  Refresh();
  const auto result = backend_->Evaluate(batch, parameters_);
  INFO(result.status());
  REQUIRE(result.ok());
  return *result;
}

}  // namespace evenshard
