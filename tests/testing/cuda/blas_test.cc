// Tests the stand-in's cuBLAS.

#include <cublas_v2.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/wire/half_width.h"
#include "tests/testing/cuda/fixture.h"

namespace evenshard::cuda_stand_in {
namespace {

class Blas {
 public:
  Blas() {
    REQUIRE(cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetStream(handle_, stream_.get()) == CUBLAS_STATUS_SUCCESS);
  }
  ~Blas() { cublasDestroy(handle_); }
  cublasHandle_t get() const { return handle_; }
  const Stream& stream() const { return stream_; }

 private:
  Stream stream_;
  cublasHandle_t handle_ = nullptr;
};

// Rounds `values` to bfloat16, and returns them in bfloat16.
std::vector<uint16_t> Rounded(std::vector<float>* values) {
  std::vector<uint16_t> halves(values->size());
  Bfloat16().encode(values->data(), values->size(), halves.data());
  Bfloat16().decode(halves.data(), values->size(), values->data());
  return halves;
}

std::vector<float> RandomFloats(size_t n, uint64_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = CounterRandom(1, stream).Normal(i);
  return values;
}

TEST_CASE("A gemm multiplies what its operands say") {
  const FreshDevice device;
  const bool ta = GENERATE(false, true);
  const bool tb = GENERATE(false, true);
  const cudaDataType in = GENERATE(CUDA_R_32F, CUDA_R_16BF);
  const cudaDataType out = GENERATE(CUDA_R_32F, CUDA_R_16BF);
  if (in == CUDA_R_32F && out == CUDA_R_16BF) return;  // cuBLAS has no such gemm
  const int m = 19, n = 6, k = 33;
  const int lda = (ta ? k : m) + 2, ldb = (tb ? n : k) + 1, ldc = m + 3;
  const float alpha = 0.5f;
  const float beta = GENERATE(0.0f, 2.0f);
  CAPTURE(ta, tb, in, out, beta);

  std::vector<float> a = RandomFloats(lda * (ta ? m : k), 1);
  std::vector<float> b = RandomFloats(ldb * (tb ? k : n), 2);
  std::vector<float> c = RandomFloats(ldc * n, 3);
  const std::vector<uint16_t> a_halves = in == CUDA_R_16BF ? Rounded(&a) : std::vector<uint16_t>();
  const std::vector<uint16_t> b_halves = in == CUDA_R_16BF ? Rounded(&b) : std::vector<uint16_t>();
  const std::vector<uint16_t> c_halves = out == CUDA_R_16BF ? Rounded(&c) : std::vector<uint16_t>();
  const Blas blas;
  const Buffer a_buffer = in == CUDA_R_16BF ? Buffer(a_halves) : Buffer(a);
  const Buffer b_buffer = in == CUDA_R_16BF ? Buffer(b_halves) : Buffer(b);
  const Buffer c_buffer = beta == 0            ? Buffer(c.size() * (out == CUDA_R_16BF ? 2 : 4))
                          : out == CUDA_R_16BF ? Buffer(c_halves)
                                               : Buffer(c);
  REQUIRE(cublasGemmEx(blas.get(), ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                       m, n, k, &alpha, a_buffer.data(), in, lda, b_buffer.data(), in, ldb, &beta,
                       c_buffer.data(), out, ldc, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  std::vector<float> result(c.size());
  if (out == CUDA_R_16BF) {
    const std::vector<uint16_t> halves = c_buffer.Values<uint16_t>(blas.stream());
    Bfloat16().decode(halves.data(), halves.size(), result.data());
  } else {
    result = c_buffer.Values<float>(blas.stream());
  }
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) {
      double sum = 0;
      for (int p = 0; p < k; ++p) {
        sum += static_cast<double>(ta ? a[i * lda + p] : a[p * lda + i]) *
               (tb ? b[p * ldb + j] : b[j * ldb + p]);
      }
      const double expected = alpha * sum + (beta == 0 ? 0 : beta * c[j * ldc + i]);
      const double tolerance = out == CUDA_R_16BF ? Bfloat16().relative_error : 1e-5;
      REQUIRE(std::abs(result[j * ldc + i] - expected) <= tolerance * std::abs(expected) + 1e-5);
    }
    // The gap between two columns is not written.
    for (int i = m; i < ldc; ++i) {
      if (beta != 0) REQUIRE(result[j * ldc + i] == c[j * ldc + i]);
      if (beta == 0) REQUIRE(std::isnan(result[j * ldc + i]));
    }
  }
}

TEST_CASE("A gemm reads its scalars at the call, and nothing of C where beta is 0") {
  const FreshDevice device;
  const Blas blas;
  const Buffer a(std::vector<float>{3}), b(std::vector<float>{5}), c(4);
  float alpha = 2, beta = 0;
  const cublasComputeType_t compute = GENERATE(CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  REQUIRE(cublasGemmEx(blas.get(), CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, a.data(), CUDA_R_32F,
                       1, b.data(), CUDA_R_32F, 1, &beta, c.data(), CUDA_R_32F, 1, compute,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  alpha = beta = 100;
  CHECK(c.Values<float>(blas.stream()) == std::vector<float>{30});
  CHECK(GetTotals().gemms == 1);
  CHECK(GetTotals().tf32_calls == (compute == CUBLAS_COMPUTE_32F ? 0 : 1));
}

TEST_CASE("A gemm with wrong operands is refused") {
  const FreshDevice device;
  const Blas blas;
  const Buffer a(4 * 6), b(4 * 6), c(4 * 4);
  const auto gemm = [&](int m, int lda, void* to, cudaDataType type) {
    const float one = 1;
    return cublasGemmEx(blas.get(), CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 3, &one, a.data(), CUDA_R_32F,
                        lda, b.data(), CUDA_R_32F, 3, &one, to, type, m, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
  };
  CHECK(gemm(2, 2, c.data(), CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(gemm(2, 1, c.data(), CUDA_R_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(LastProblem() == "A: leading dimension 1 for 2 rows");
  CHECK(gemm(2, 3, c.data(), CUDA_R_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(LastProblem().find("A: 32 bytes at ") == 0);
  CHECK(gemm(2, 2, c.at(4), CUDA_R_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(gemm(-1, 2, c.data(), CUDA_R_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(gemm(2, 2, c.data(), CUDA_R_16BF) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(std::string(cublasGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED)) ==
        "CUBLAS_STATUS_NOT_SUPPORTED");
  LoseDevice(1);
  CHECK(gemm(2, 2, c.data(), CUDA_R_32F) == CUBLAS_STATUS_EXECUTION_FAILED);
  cublasHandle_t handle = nullptr;
  CHECK(cublasCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_CASE("A workspace must be device memory, and aligned") {
  const FreshDevice device;
  const Blas blas;
  const Buffer workspace(1024);
  CHECK(cublasSetWorkspace(blas.get(), workspace.data(), 1024) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSetWorkspace(blas.get(), workspace.data(), 1025) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasSetWorkspace(blas.get(), workspace.at(16), 512) == CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace evenshard::cuda_stand_in
