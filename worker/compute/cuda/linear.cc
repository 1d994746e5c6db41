#include <optional>
#include <utility>

#include "worker/compute/cuda/bias.h"
#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/layers.h"

namespace evenshard {
namespace {

cudaDataType_t DataType(ElementType type) {
  return type == ElementType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

// A row-major matrix. cuBLAS is column-major, so it sees the transpose in the same memory.
struct Matrix {
  const void* data = nullptr;
  int64_t columns = 0;
  bool transposed = false;
};

// Computes result [rows, columns] = a [rows, inner] * b [inner, columns]. Each operand is
// transposed first if it says so.
void Multiply(const CudaDevice& device, int64_t rows, int64_t inner, int64_t columns,
              const Matrix& a, const Matrix& b, ElementType result_type, void* result) {
  const float one = 1;
  const float zero = 0;
  const auto operation = [](const Matrix& m) { return m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cudaDataType_t type = DataType(device.type());
  const cublasComputeType_t compute =
      device.precision() == Compute::Cuda::TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  Check(cublasGemmEx(device.cublas(), operation(b), operation(a), static_cast<int>(columns),
                     static_cast<int>(rows), static_cast<int>(inner), &one, b.data, type,
                     static_cast<int>(b.columns), a.data, type, static_cast<int>(a.columns), &zero,
                     result, DataType(result_type), static_cast<int>(columns), compute,
                     CUBLAS_GEMM_DEFAULT),
        "starting a matrix product");
}

class CudaLinear : public CudaLayer {
 public:
  CudaLinear(const CudaContext& context, const Layer& layer, CudaActivation input)
      : CudaLayer(context, std::move(input)),
        tensor_(context.model->tensors()[layer.first_tensor]),
        inputs_(layer.input.size()),
        outputs_(layer.output.size()) {
    if (context.type() != ElementType::kFloat32) {
      weights_ = context.memory->Declare(inputs_ * outputs_ * BytesOf(context.type()));
    }
    DeclareOutput(layer.output, /*has_gradient=*/true);
    bias_.emplace(context, layer.spec.linear().bias() ? &tensor_ + 1 : nullptr, output_);
  }

  bool FuseRelu() override {
    bias_->FuseRelu();
    return true;
  }

  void Forward(const CudaPass& pass) override {
    if (weights_ != nullptr) {
      kernels::Convert(context_.stream(), inputs_ * outputs_, pass.parameters + tensor_.offset,
                       context_.type(), weights_->data);
    }
    Multiply(*context_.device, context_.images, inputs_, outputs_, {input_.value->data, inputs_},
             {WeightsOf(pass), inputs_, /*transposed=*/true}, context_.type(), output_.value->data);
    bias_->Forward(pass);
  }

  void Backward(const CudaPass& pass) override {
    bias_->Backward(pass);
    const Matrix by_output = {output_.gradient->data, outputs_};
    Multiply(*context_.device, outputs_, context_.images, inputs_,
             {by_output.data, outputs_, /*transposed=*/true}, {input_.value->data, inputs_},
             ElementType::kFloat32, pass.gradients + tensor_.offset);
    if (input_.gradient == nullptr) return;
    Multiply(*context_.device, context_.images, outputs_, inputs_, by_output,
             {WeightsOf(pass), inputs_}, context_.type(), input_.gradient->data);
  }

 private:
  const void* WeightsOf(const CudaPass& pass) const {
    return weights_ != nullptr ? weights_->data : pass.parameters + tensor_.offset;
  }

  const Tensor& tensor_;  // the weights [outputs, inputs]; the bias follows them
  const int64_t inputs_, outputs_;
  CudaArrayPtr weights_;  // in bfloat16; Forward converts them for Backward. Null if float32
  std::optional<Bias> bias_;
};

class CudaFlatten : public CudaLayer {
 public:
  CudaFlatten(const CudaContext& context, CudaActivation input)
      : CudaLayer(context, std::move(input)) {
    DeclareOutput({input_.shape.size(), 1, 1}, input_.gradient != nullptr);
  }

  void Forward(const CudaPass& pass) override {
    kernels::ToPlanes(context_.stream(), PlanesOf(input_), context_.type(), input_.value->data,
                      context_.type(), output_.value->data);
  }

  void Backward(const CudaPass& pass) override {
    kernels::ToChannelsLast(context_.stream(), PlanesOf(input_), context_.type(),
                            output_.gradient->data, context_.type(), input_.gradient->data);
  }
};

}  // namespace

std::unique_ptr<CudaLayer> MakeCudaLinear(const CudaContext& context, const Layer& layer,
                                          CudaActivation input) {
  return std::make_unique<CudaLinear>(context, layer, std::move(input));
}

std::unique_ptr<CudaLayer> MakeCudaFlatten(const CudaContext& context, CudaActivation input) {
  return std::make_unique<CudaFlatten>(context, std::move(input));
}

}  // namespace evenshard
