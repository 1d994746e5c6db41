"""Tests of the CUDA backend."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//third_party:cuda.bzl", "NEEDS_CUDA_TOOLKIT")

def cuda_test(name, deps, **kwargs):
    """Two tests of the same sources: `name`, on a stand-in for a device, and `name`_gpu.

    Args:
      name: of the first.
      deps: of both.
      **kwargs: passed on to both.
    """
    cc_test(
        name = name,
        linkstatic = True,  # which takes from a library what another one needs
        # With --config=cuda a trainer brings the real libraries.
        target_compatible_with = select({
            "//third_party:cuda": ["//third_party:incompatible"],
            "//conditions:default": NEEDS_CUDA_TOOLKIT,
        }),
        deps = deps + ["//tests/worker/compute/cuda:on_stand_in"],
        **kwargs
    )
    cc_test(
        name = name + "_gpu",
        linkstatic = True,  # the run-time library is an archive
        tags = [
            "exclusive",
            "gpu",
        ],
        target_compatible_with = NEEDS_CUDA_TOOLKIT,
        deps = deps + ["//tests/worker/compute/cuda:on_gpu"],
        **kwargs
    )
