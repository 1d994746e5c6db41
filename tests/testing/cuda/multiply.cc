#include "tests/testing/cuda/multiply.h"

#include <algorithm>
#include <vector>

#include "common/base/element_loop.h"

namespace evenshard::cuda_stand_in {

// Multiplies a packed panel of kRows rows of `a` with kColumns columns of `b` at a time, so that
// the sums stay in registers.
EVENSHARD_VECTORIZED void MultiplyAdd(int64_t m, int64_t n, int64_t k, float alpha, MatrixView a,
                                      MatrixView b, float* c, int64_t ldc) {
  constexpr int kRows = 16;
  constexpr int kColumns = 4;
  std::vector<float> panel(k * kRows);
  for (int64_t i = 0; i < m; i += kRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kRows, m - i));
    for (int64_t p = 0; p < k; ++p) {
      const float* from = a.data + i * a.row_stride + p * a.column_stride;
      for (int r = 0; r < rows; ++r) panel[p * kRows + r] = from[r * a.row_stride];
    }
    for (int64_t j = 0; j < n; j += kColumns) {
      const int columns = static_cast<int>(std::min<int64_t>(kColumns, n - j));
      const float* from[kColumns];
      for (int q = 0; q < kColumns; ++q) {
        from[q] = b.data + (j + std::min(q, columns - 1)) * b.column_stride;
      }
      float sums[kColumns][kRows] = {};
      for (int64_t p = 0; p < k; ++p) {
        const float* column = panel.data() + p * kRows;
        for (int q = 0; q < kColumns; ++q) {
          const float factor = from[q][p * b.row_stride];
          for (int r = 0; r < kRows; ++r) sums[q][r] += column[r] * factor;
        }
      }
      for (int q = 0; q < columns; ++q) {
        float* to = c + i + (j + q) * ldc;
        for (int r = 0; r < rows; ++r) to[r] += alpha * sums[q][r];
      }
    }
  }
}

}  // namespace evenshard::cuda_stand_in
