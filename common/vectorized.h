#ifndef PS_COMMON_VECTORIZED_H_
#define PS_COMMON_VECTORIZED_H_

// Compiles a function once for each instruction set; the processor's best is chosen at the
// start of the program. The targets that use it are built without contraction (fused
// multiply-add), so all of them give the same bits. Clang 14 knows no clones of templates and
// builds the default only. So does ThreadSanitizer, which would be called to choose a clone before
// it is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define PS_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PS_VECTORIZED
#endif

#endif  // PS_COMMON_VECTORIZED_H_
