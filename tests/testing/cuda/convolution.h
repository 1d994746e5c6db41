#ifndef PS_TESTS_TESTING_CUDA_CONVOLUTION_H_
#define PS_TESTS_TESTING_CUDA_CONVOLUTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ps::cuda_stand_in {

// A tensor of float32 or bfloat16: element (i0, i1, i2, i3) is i0 * strides[0] + ... elements on.
struct Tensor {
  int64_t id = 0;
  bool bfloat16 = false;
  bool is_virtual = false;  // in no memory
  int64_t alignment = 1;    // of its address, in bytes
  std::array<int64_t, 4> sizes = {};
  std::array<int64_t, 4> strides = {};
  void* data = nullptr;

  int64_t ElementBytes() const { return bfloat16 ? 2 : 4; }
  size_t Bytes() const;  // from the first element to the end of the last
};

enum class ConvolutionKind { kForward, kBackwardData, kBackwardFilter };

// y [n, k, p, q] = x [n, c, h, w] cross-correlated with w [k, c, r, s], or one of its gradients:
// the kind says which of the three is the output,
//   output = alpha * result + beta * output,
// which is not read where beta is 0. Spatial pairs are (vertical, horizontal).
struct Convolution {
  ConvolutionKind kind = ConvolutionKind::kForward;
  Tensor x, w, y;
  std::array<int64_t, 2> padding = {}, end_padding = {}, stride = {}, dilation = {};
  float alpha = 1;
  float beta = 0;
  // What the forward pass does with y before it is rounded: y = max(y + bias [1, k, 1, 1], 0).
  struct BiasRelu {
    Tensor bias;
    bool keeps_nan = false;  // else max(NaN, 0) is 0
  };
  std::optional<BiasRelu> then;

  std::vector<Tensor*> tensors();
  Tensor& output();
  void Compute() const;
};

}  // namespace ps::cuda_stand_in

#endif  // PS_TESTS_TESTING_CUDA_CONVOLUTION_H_
