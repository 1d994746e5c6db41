#ifndef EVENSHARD_COMMON_BASE_ELEMENT_LOOP_H_
#define EVENSHARD_COMMON_BASE_ELEMENT_LOOP_H_

#include <cstdint>

// The types and the attribute for loops over the elements of gradients and parameters. Targets with
// such loops use the copts of vectorized.bzl.

namespace evenshard {

// Elements at an address of any alignment, because received data starts where the message header
// ends. Declare pointers to them by these names: `auto` and template arguments drop the alignment.
typedef float UnalignedFloat __attribute__((aligned(1), may_alias));
typedef uint16_t UnalignedHalf __attribute__((aligned(1), may_alias));  // any 16-bit format

}  // namespace evenshard

// Compiles a function once for each instruction set; the best one for the processor is chosen when
// the program starts. Targets that use this macro are built without contraction to fused
// multiply-adds, so that all versions give the same bits. Clang 14 cannot clone templates, so it
// builds the default version only. So does g++ with ThreadSanitizer, which would be called to
// choose a version before it has been loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define EVENSHARD_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVENSHARD_VECTORIZED
#endif

#endif  // EVENSHARD_COMMON_BASE_ELEMENT_LOOP_H_
