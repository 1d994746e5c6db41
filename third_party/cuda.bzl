"""NVIDIA's CUDA toolkit with cuBLAS and cuDNN, where it is installed, and its compiler."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@cuda//:toolkit.bzl", "CUDA_TOOLKIT")

# Real code for each generation from Turing to Hopper, and code that a driver translates for later
# ones.
_ARCHITECTURES = ["75", "80", "86", "89", "90"]

# For `target_compatible_with`: what needs the toolkit is passed over where there is none.
NEEDS_CUDA_TOOLKIT = [] if CUDA_TOOLKIT else ["//third_party:incompatible"]

def needs_cuda_toolkit(label):
    """In place of the label of something that --config=cuda adds: an error where it cannot."""
    return label if CUDA_TOOLKIT else "@cuda//:missing"

def _nvcc_objects_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    arguments = ctx.actions.args()
    arguments.add_all(["-x", "cu", "-std=c++20", "-O3", "--expt-relaxed-constexpr", "--threads=2", "-Xcompiler=-fPIC,-Wall", "-c"])
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
    """A cc_library of sources with device code, compiled by nvcc.

    Args:
      name: of the cc_library.
      srcs: .cc files.
      deps: cc_libraries, whose headers the sources include.
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
