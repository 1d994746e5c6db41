#ifndef EVENSHARD_TESTS_TESTING_CUDA_CONVOLUTION_H_
#define EVENSHARD_TESTS_TESTING_CUDA_CONVOLUTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace evenshard::cuda_stand_in {

// A tensor of float32 or bfloat16. Element (i0, i1, i2, i3) is at i0 * strides[0] + ..., in
// elements.
struct Tensor {
  int64_t id = 0;
  bool bfloat16 = false;
  bool is_virtual = false;  // not in memory
  int64_t alignment = 1;    // of its address, in bytes
  std::array<int64_t, 4> sizes = {};
  std::array<int64_t, 4> strides = {};
  void* data = nullptr;

  int64_t ElementBytes() const { return bfloat16 ? 2 : 4; }
  size_t Bytes() const;  // from the first byte of the first element to the last byte of the last
};

enum class ConvolutionKind { kForward, kBackwardData, kBackwardFilter };

// The cross-correlation y [n, k, p, q] of x [n, c, h, w] with w [k, c, r, s], or one of its
// gradients. `kind` says which of the three is the output:
//   output = alpha * result + beta * output
// The output is not read if beta is 0. Spatial pairs are (vertical, horizontal).
struct Convolution {
  ConvolutionKind kind = ConvolutionKind::kForward;
  Tensor x, w, y;
  std::array<int64_t, 2> padding = {}, end_padding = {}, stride = {}, dilation = {};
  float alpha = 1;
  float beta = 0;
  // Replaces the forward pass's y, before it is rounded, by max(y + bias [1, k, 1, 1], 0).
  struct BiasRelu {
    Tensor bias;
    bool keeps_nan = false;  // otherwise max(NaN, 0) is 0
  };
  std::optional<BiasRelu> then;

  std::vector<Tensor*> tensors();
  Tensor& output();
  void Compute() const;
};

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_CONVOLUTION_H_
