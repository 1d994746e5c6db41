"""Generates C++ code from .proto files with the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def cc_proto(name, src, deps = [], grpc = False, visibility = None, **kwargs):
    """A cc_library with the generated code of one .proto file.

    The C++ namespace of the present version of the protocol is inline: evenshard::v1::ChunkHeader
    is evenshard::ChunkHeader too, so that only what must know several versions names one.

    Args:
      name: the name of the cc_library.
      src: the .proto file. Its imports are relative to the workspace.
      deps: the cc_proto targets of the files that it imports.
      grpc: whether to generate service code too.
      visibility: of the cc_library, the generated files and the sources.
      **kwargs: passed on to the cc_library.
    """
    stem = src[:-len(".proto")]
    suffixes = [".pb"] + ([".grpc.pb"] if grpc else [])
    hdrs = [stem + suffix + ".h" for suffix in suffixes]
    srcs = [stem + suffix + ".cc" for suffix in suffixes]
    tools = ["@protobuf_compiler//:protoc"]
    command = "$(location @protobuf_compiler//:protoc) -I. --cpp_out=$(GENDIR)"
    if grpc:
        tools.append("@protobuf_compiler//:grpc_cpp_plugin")
        command += (" --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=" +
                    "$(location @protobuf_compiler//:grpc_cpp_plugin)")
    native.genrule(
        name = name + "_generate",
        srcs = [src] + [dep + "_sources" for dep in deps],
        outs = hdrs + srcs,
        cmd = command + " $(location %s)" % src +
              " && sed -i 's/^namespace v1 {/inline namespace v1 {/' $(OUTS)",
        exec_tools = tools,
        visibility = visibility,
    )
    native.filegroup(
        name = name + "_sources",
        srcs = [src] + [dep + "_sources" for dep in deps],
        visibility = visibility,
    )
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        visibility = visibility,
        deps = deps + ["@protobuf"] + (["@grpc"] if grpc else []),
        **kwargs
    )
