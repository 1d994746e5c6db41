"""Finds NVIDIA's CUDA toolkit."""

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# The headers of the run-time library, cuBLAS and cuDNN.
cc_library(
    name = "headers",
    hdrs = glob(["include/*.h*", "include/crt/*.h*", "include/nv/**"]),
    includes = ["include"],
)

# The run-time library is linked statically. cuBLAS and cuDNN are looked for at run time in the
# toolkit's folder, beside the program, and in the system's folders.
cc_library(
    name = "libraries",
    linkopts = [
        "-L{root}/lib64",
        "-l:libcudart_static.a",
        "-lcudnn",
        "-lcublas",
        "-ldl",
        "-lrt",
        "-lpthread",
        "-Wl,-rpath,{root}/lib64",
        "-Wl,-rpath,$$ORIGIN",
    ],
    deps = [":headers"],
)
"""

# The stand-in without a toolkit. Targets that need the toolkit can name its empty libraries, since
# Bazel skips them; `missing` is the error that --config=cuda reports.
_MISSING_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")
load(":toolkit.bzl", "missing_toolkit")

package(default_visibility = ["//visibility:public"])

[cc_library(name = name) for name in ["headers", "libraries"]]

missing_toolkit(name = "missing")
"""

_MISSING_BZL = """
CUDA_TOOLKIT = ""

def _missing_toolkit_impl(ctx):
    fail("the CUDA toolkit was not found: {missing}. " +
         "CUDA_HOME names its folder, /usr/local/cuda by default; cuDNN 9 belongs into it.")

missing_toolkit = rule(implementation = _missing_toolkit_impl)
"""

def _cuda_toolkit_impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    needed = ["bin/nvcc", "include/cublas_v2.h", "include/cudnn.h", "lib64/libcudart_static.a"]
    missing = [name for name in needed if not ctx.path(root + "/" + name).exists]
    if missing:
        ctx.file("toolkit.bzl", _MISSING_BZL.format(missing = "no %s/%s" % (root, missing[0])))
        ctx.file("BUILD.bazel", _MISSING_BUILD)
        return
    ctx.symlink(root + "/include", "include")
    ctx.file("toolkit.bzl", "CUDA_TOOLKIT = \"%s\"\n" % root)
    ctx.file("BUILD.bazel", _BUILD.format(root = root))

cuda_toolkit = repository_rule(
    doc = "Provides the CUDA toolkit as @name//:headers and @name//:libraries. CUDA_TOOLKIT in " +
          "@name//:toolkit.bzl is its folder. Without a toolkit it is empty, and @name//:missing " +
          "fails with what is missing.",
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
