"""Tests that use Catch2."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def catch2_test(name, deps = [], **kwargs):
    """Defines the test of NAME.cc, whose main function is Catch2's.

    Args:
      name: The name of the test and of its source.
      deps: What else it depends on.
      **kwargs: Passed on to cc_test.
    """
    cc_test(
        name = name,
        srcs = [name + ".cc"],
        deps = deps + ["//third_party:catch2_main"],
        **kwargs
    )
