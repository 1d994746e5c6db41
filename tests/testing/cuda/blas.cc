// The stand-in's cuBLAS; see device.h.

#include <cublas_v2.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/wire/half_width.h"
#include "tests/testing/cuda/multiply.h"
#include "tests/testing/cuda/state.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace evenshard::cuda_stand_in {
namespace {

cublasStatus_t Fail(cublasStatus_t status, std::string text) {
  SetProblem(std::move(text));
  return status;
}

cublasStatus_t CheckHandle(cublasHandle_t handle) {
  if (Usable() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (state.blas_handles.count(handle) > 0) return CUBLAS_STATUS_SUCCESS;
  return Fail(CUBLAS_STATUS_NOT_INITIALIZED, "not a cuBLAS handle that is alive");
}

// A column-major matrix in device memory.
struct Operand {
  const char* name;
  const void* data;
  cudaDataType type;  // CUDA_R_32F or CUDA_R_16BF
  int64_t rows, columns, ld;

  int64_t ElementBytes() const { return type == CUDA_R_32F ? 4 : 2; }
  size_t Bytes() const { return ((columns - 1) * ld + rows) * ElementBytes(); }

  cublasStatus_t Check(cudaStream_t stream) const {
    if (ld < std::max<int64_t>(1, rows)) {
      return Fail(CUBLAS_STATUS_INVALID_VALUE,
                  absl::StrCat(name, ": leading dimension ", ld, " for ", rows, " rows"));
    }
    if (rows == 0 || columns == 0) return CUBLAS_STATUS_SUCCESS;
    return OnDevice(data, Bytes(), stream, name) ? CUBLAS_STATUS_SUCCESS
                                                 : CUBLAS_STATUS_INVALID_VALUE;
  }

  // Returns op(this) as float32. The data is in `storage` if it had to be converted.
  MatrixView View(bool transposed, std::vector<float>* storage) const {
    const float* floats = static_cast<const float*>(data);
    int64_t stride = ld;
    if (type == CUDA_R_16BF) {
      storage->resize(rows * columns);
      for (int64_t j = 0; j < columns; ++j) {
        Bfloat16().decode(static_cast<const uint16_t*>(data) + j * ld, rows,
                          storage->data() + j * rows);
      }
      floats = storage->data();
      stride = rows;
    }
    return transposed ? MatrixView{floats, stride, 1} : MatrixView{floats, 1, stride};
  }
};

// Computes c = alpha * op(a) * op(b) + beta * c. If beta is 0, c is not read.
void Gemm(bool transpose_a, bool transpose_b, int64_t k, float alpha, const Operand& a,
          const Operand& b, float beta, const Operand& c) {
  std::vector<float> a_storage, b_storage, c_storage;
  float* sums = static_cast<float*>(const_cast<void*>(c.data));
  int64_t ld = c.ld;
  if (c.type == CUDA_R_16BF) {
    c_storage.resize(c.rows * c.columns);
    if (beta != 0) c.View(false, &c_storage);
    sums = c_storage.data();
    ld = c.rows;
  }
  for (int64_t j = 0; j < c.columns; ++j) {
    for (float* sum = sums + j * ld; sum < sums + j * ld + c.rows; ++sum) {
      *sum = beta == 0 ? 0 : beta * *sum;
    }
  }
  if (k > 0 && alpha != 0) {
    MultiplyAdd(c.rows, c.columns, k, alpha, a.View(transpose_a, &a_storage),
                b.View(transpose_b, &b_storage), sums, ld);
  }
  if (c.type == CUDA_R_32F) return;
  for (int64_t j = 0; j < c.columns; ++j) {
    Bfloat16().encode(sums + j * ld, c.rows,
                      static_cast<uint16_t*>(const_cast<void*>(c.data)) + j * c.ld);
  }
}

}  // namespace
}  // namespace evenshard::cuda_stand_in

using namespace evenshard::cuda_stand_in;  // NOLINT: what follows is C

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (Usable() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  *handle = new cublasContext;
  state.blas_handles.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (state.blas_handles.erase(handle) == 0) {
    return Fail(CUBLAS_STATUS_NOT_INITIALIZED, "not a cuBLAS handle that is alive");
  }
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

// As in cuBLAS, this also resets the handle's workspace.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (cublasStatus_t status = CheckHandle(handle)) return status;
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (cublasStatus_t status = CheckHandle(handle)) return status;
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
    return Fail(CUBLAS_STATUS_INVALID_VALUE, "a workspace that is not aligned to 256 bytes");
  }
  if (bytes > 0 && !OnDevice(workspace, bytes, handle->stream, "workspace")) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (cublasStatus_t status = CheckHandle(handle)) return status;
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transpose_a,
                            cublasOperation_t transpose_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t) {
  if (cublasStatus_t status = CheckHandle(handle)) return status;
  if (m < 0 || n < 0 || k < 0 || alpha == nullptr || beta == nullptr) {
    return Fail(CUBLAS_STATUS_INVALID_VALUE, "a negative dimension, or no alpha or beta");
  }
  const bool floats = a_type == CUDA_R_32F && b_type == CUDA_R_32F && c_type == CUDA_R_32F;
  const bool halves = a_type == CUDA_R_16BF && b_type == CUDA_R_16BF &&
                      (c_type == CUDA_R_32F || c_type == CUDA_R_16BF);
  const bool fast = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const bool transposes_known = transpose_a != CUBLAS_OP_C && transpose_b != CUBLAS_OP_C;
  if ((!floats && (!halves || fast)) || (compute != CUBLAS_COMPUTE_32F && !fast) ||
      !transposes_known) {
    return Fail(CUBLAS_STATUS_NOT_SUPPORTED, "types, compute type or transposes of a gemm");
  }
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  const bool ta = transpose_a == CUBLAS_OP_T;
  const bool tb = transpose_b == CUBLAS_OP_T;
  const Operand a_matrix = {"A", a, a_type, ta ? k : m, ta ? m : k, lda};
  const Operand b_matrix = {"B", b, b_type, tb ? n : k, tb ? k : n, ldb};
  const Operand c_matrix = {"C", c, c_type, m, n, ldc};
  for (const Operand& operand : {a_matrix, b_matrix, c_matrix}) {
    if (cublasStatus_t status = operand.Check(handle->stream)) return status;
  }

  const auto work = [=, alpha = *static_cast<const float*>(alpha),
                     beta = *static_cast<const float*>(beta), workspace = handle->workspace,
                     workspace_bytes = std::min<size_t>(handle->workspace_bytes, 1 << 16)] {
    const WorkspaceUse use(workspace, workspace_bytes);
    Gemm(ta, tb, k, alpha, a_matrix, b_matrix, beta, c_matrix);
    if (use.Disturbed()) std::memset(c, 0xff, c_matrix.Bytes());
  };
  if (Enqueue(handle->stream, work) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  ++state.totals.gemms;
  if (fast || (floats && handle->math_mode == CUBLAS_TF32_TENSOR_OP_MATH)) {
    ++state.totals.tf32_calls;
  }
  return CUBLAS_STATUS_SUCCESS;
}

#define STATUS(status) \
  case status:         \
    return #status;

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    STATUS(CUBLAS_STATUS_SUCCESS)
    STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
    STATUS(CUBLAS_STATUS_ALLOC_FAILED)
    STATUS(CUBLAS_STATUS_INVALID_VALUE)
    STATUS(CUBLAS_STATUS_ARCH_MISMATCH)
    STATUS(CUBLAS_STATUS_MAPPING_ERROR)
    STATUS(CUBLAS_STATUS_EXECUTION_FAILED)
    STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
    STATUS(CUBLAS_STATUS_NOT_SUPPORTED)
    STATUS(CUBLAS_STATUS_LICENSE_ERROR)
  }
  return "unknown cuBLAS status";
}
