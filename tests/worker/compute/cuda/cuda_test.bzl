"""Tests of the CUDA backend."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//third_party:cuda.bzl", "NEEDS_CUDA_TOOLKIT")

def cuda_test(name, deps, **kwargs):
    """Defines two tests of the same sources: `name` on the stand-in, `name`_gpu on a device.

    Args:
      name: The name of the first test.
      deps: The dependencies of both tests.
      **kwargs: Passed on to both tests.
    """
    cc_test(
        name = name,
        linkstatic = True,  # so that a library finds what another one defines
        # With --config=cuda, a trainer links the real libraries.
        target_compatible_with = select({
            "//third_party:cuda": ["//third_party:incompatible"],
            "//conditions:default": NEEDS_CUDA_TOOLKIT,
        }),
        deps = deps + ["//tests/worker/compute/cuda:on_stand_in"],
        **kwargs
    )
    cc_test(
        name = name + "_gpu",
        linkstatic = True,  # since the run-time library is an archive
        tags = [
            "exclusive",
            "gpu",
        ],
        target_compatible_with = NEEDS_CUDA_TOOLKIT,
        deps = deps + ["//tests/worker/compute/cuda:on_gpu"],
        **kwargs
    )
