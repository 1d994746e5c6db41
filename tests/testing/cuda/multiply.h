#ifndef EVENSHARD_TESTS_TESTING_CUDA_MULTIPLY_H_
#define EVENSHARD_TESTS_TESTING_CUDA_MULTIPLY_H_

#include <cstdint>

namespace evenshard::cuda_stand_in {

// Element (i, j) is data[i * row_stride + j * column_stride].
struct MatrixView {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
};

// Computes c += alpha * a * b, where a is [m, k] and b is [k, n]. c is [m, n] and column-major,
// with element (i, j) at i + j * ldc.
void MultiplyAdd(int64_t m, int64_t n, int64_t k, float alpha, MatrixView a, MatrixView b, float* c,
                 int64_t ldc);

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_MULTIPLY_H_
