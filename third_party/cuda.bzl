"""Compiles device code with the compiler of NVIDIA's CUDA toolkit, if that is installed."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@cuda//:toolkit.bzl", "CUDA_TOOLKIT")

# There is machine code for each generation from Turing to Hopper, and PTX, which a driver compiles
# for later ones.
_ARCHITECTURES = ["75", "80", "86", "89", "90"]

# The value of `target_compatible_with` for targets that need the toolkit. Bazel skips them if it is
# not installed.
NEEDS_CUDA_TOOLKIT = [] if CUDA_TOOLKIT else ["//third_party:incompatible"]

def needs_cuda_toolkit(label):
    """Returns `label`, which --config=cuda adds, or without the toolkit that of an error."""
    return label if CUDA_TOOLKIT else "@cuda//:missing"

def _nvcc_objects_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    arguments = ctx.actions.args()
    arguments.add_all(["-x", "cu", "-std=c++20", "-O3", "--expt-relaxed-constexpr", "--threads=2"])
    arguments.add_all(["-Xcompiler=-fPIC,-Wall", "-c"])
    for number in _ARCHITECTURES:
        arguments.add("-gencode=arch=compute_%s,code=sm_%s" % (number, number))
    newest = _ARCHITECTURES[-1]
    arguments.add("-gencode=arch=compute_%s,code=compute_%s" % (newest, newest))
    for context in contexts:
        arguments.add_all(context.quote_includes, before_each = "-I")
        arguments.add_all(context.system_includes, before_each = "-isystem")
    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file(source.basename + ".nvcc.o")
        ctx.actions.run(
            executable = CUDA_TOOLKIT + "/bin/nvcc",
            arguments = [arguments, source.path, "-o", object.path],
            inputs = depset(ctx.files.srcs, transitive = [context.headers for context in contexts]),
            outputs = [object],
            use_default_shell_env = True,  # nvcc finds the C++ compiler on the PATH
            mnemonic = "Nvcc",
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "srcs": attr.label_list(allow_files = [".cc"]),
    },
)

def cuda_library(name, srcs, deps, **kwargs):
    """Defines a cc_library of sources with device code, which nvcc compiles.

    Args:
      name: the name of the cc_library.
      srcs: .cc files.
      deps: the cc_libraries whose headers the sources include.
      **kwargs: passed on to the cc_library.
    """
    _nvcc_objects(
        name = name + "_objects",
        srcs = srcs,
        deps = deps,
        target_compatible_with = NEEDS_CUDA_TOOLKIT,
    )
    cc_library(
        name = name,
        srcs = [name + "_objects"],
        deps = deps,
        target_compatible_with = NEEDS_CUDA_TOOLKIT,
        **kwargs
    )
