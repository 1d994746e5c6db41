"""Compiler options for loops over gradients and parameters."""

# The loops are vectorised, and without contraction to fused multiply-adds, so that every processor
# gives the same bits (see element_loop.h).
VECTORIZED_COPTS = [
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]
