"""Fuzz targets."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def fuzz_target(name, deps, runs, max_len = 1024):
    """Defines the test `name`_fuzzer of `name`_fuzzer.cc, which defines LLVMFuzzerTestOneInput.

    The test runs the inputs in corpus/`name`, and others, the same each time, that libFuzzer makes
    of them without knowing what they reach, since the test is compiled like everything else. With
    --config=fuzz it is the fuzzer that tools/fuzz runs.

    Args:
      name: that of the fuzzer.
      deps: the dependencies of its source.
      runs: how many inputs the test runs; a few seconds' worth.
      max_len: the bytes of the longest input that is made.
    """
    cc_test(
        name = name + "_fuzzer",
        srcs = [name + "_fuzzer.cc"],
        args = [
            "-keep_seed=1",
            "-len_control=0",
            "-max_len=%d" % max_len,
            "-runs=%d" % runs,
            "-seed=1",
            "tests/fuzz/corpus/" + name,
        ],
        data = native.glob(["corpus/%s/*" % name]),
        deps = deps + [
            ":fuzzing",
            "@libfuzzer",
        ],
    )
