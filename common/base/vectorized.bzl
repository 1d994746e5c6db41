"""How loops over gradients are compiled."""

# Vectorised, and without contraction, so that every processor gives the same bits (see
# element_loop.h).
VECTORIZED_COPTS = [
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]
