"""Finds the system's libraries with pkg-config and its tools on the PATH."""

def _run(ctx, arguments, what):
    result = ctx.execute(arguments)
    if result.return_code != 0:
        fail("%s: %s was not found. Run ./tools/setup, which installs it.\n%s" %
             (ctx.name, what, result.stderr))
    return result.stdout.strip()

def _quoted(items):
    return ", ".join(["\"%s\"" % item for item in items])

# The parts of the C library, which is never linked statically.
_C_LIBRARY = ["-lc", "-lm", "-lpthread", "-ldl", "-lrt"]

def _static_linkopts(ctx, linkopts):
    """Returns `linkopts` with an archive for each library of which the compiler finds one."""
    compiler = ctx.os.environ.get("CXX", "c++")
    static = []
    for option in linkopts:
        archive = "lib%s.a" % option[2:]
        if option.startswith("-l") and option not in _C_LIBRARY:
            path = _run(ctx, [compiler, "-print-file-name=" + archive], compiler)
            if path != archive:
                option = "-l:" + archive
        static.append(option)

    # The group makes the linker search repeatedly: the order of pkg-config does not always suffice.
    return ["-Wl,--start-group"] + static + ["-Wl,--end-group"]

def _write_library(ctx, include_dirs, shared, static):
    """Writes a BUILD file with one cc_library, and links to its include directories.

    Args:
      ctx: the context of the repository rule.
      include_dirs: the directories of the headers.
      shared: a struct of `defines` and `linkopts`.
      static: the same for --config=static.
    """
    includes = []
    for i, directory in enumerate(include_dirs):
        ctx.symlink(directory, "include_%d" % i)
        includes.append("include_%d" % i)
    ctx.file("BUILD.bazel", """
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "{name}",
    hdrs = glob([{globs}]),
    defines = select({{
        "@//third_party:static": [{static_defines}],
        "//conditions:default": [{defines}],
    }}),
    includes = [{includes}],
    linkopts = select({{
        "@//third_party:static": [{static_linkopts}],
        "//conditions:default": [{linkopts}],
    }}),
    visibility = ["//visibility:public"],
)
""".format(
        name = ctx.name,
        globs = _quoted([i + "/**/*.h*" for i in includes]),
        defines = _quoted(shared.defines),
        includes = _quoted(includes),
        linkopts = _quoted(shared.linkopts),
        static_defines = _quoted(static.defines),
        static_linkopts = _quoted(static.linkopts),
    ))

def _pkg_config_library_impl(ctx):
    packages = ctx.attr.packages
    what = "the pkg-config package " + " or ".join(packages)
    if not ctx.which("pkg-config"):
        fail("pkg-config was not found. Run ./tools/setup, which installs it.")
    cflags = _run(ctx, ["pkg-config", "--cflags"] + packages, what).split(" ")
    libs = _run(ctx, ["pkg-config", "--libs"] + packages, what).split(" ")
    static_libs = _run(ctx, ["pkg-config", "--static", "--libs"] + packages, what).split(" ")
    shared = struct(
        defines = [flag[2:] for flag in cflags if flag.startswith("-D")],
        linkopts = [flag for flag in libs if flag] + ctx.attr.extra_linkopts,
    )
    if ctx.attr.header_only_defines:
        static = struct(defines = ctx.attr.header_only_defines, linkopts = [])
    else:
        static = struct(
            defines = shared.defines,
            linkopts = _static_linkopts(
                ctx,
                ctx.attr.extra_linkopts + [flag for flag in static_libs if flag],
            ),
        )

    # pkg-config leaves the compiler's own directories out, so each of these needs a link.
    _write_library(
        ctx,
        include_dirs = [flag[2:] for flag in cflags if flag.startswith("-I")],
        shared = shared,
        static = static,
    )

pkg_config_library = repository_rule(
    doc = "A cc_library @name//:name with the flags that pkg-config gives for `packages`.",
    implementation = _pkg_config_library_impl,
    attrs = {
        "extra_linkopts": attr.string_list(),
        # The defines that make a library without an archive header-only, for --config=static.
        "header_only_defines": attr.string_list(),
        "packages": attr.string_list(mandatory = True),
    },
    environ = ["PATH", "PKG_CONFIG_PATH", "CXX"],
    local = True,
)

def _plain_library_impl(ctx):
    ctx.file("probe.cc", "#include <%s>\nint main() {}\n" % ctx.attr.header)
    compiler = ctx.os.environ.get("CXX", "c++")
    linkopts = ["-l" + ctx.attr.library]
    _run(
        ctx,
        [compiler, str(ctx.path("probe.cc")), "-o", str(ctx.path("probe"))] + linkopts,
        "the library %s with its header %s" % (ctx.attr.library, ctx.attr.header),
    )
    options = struct(defines = [], linkopts = linkopts)
    _write_library(ctx, include_dirs = [], shared = options, static = options)

plain_library = repository_rule(
    doc = "A cc_library @name//:name for a library without a .pc file, on the compiler's own " +
          "paths. It is linked dynamically even with --config=static.",
    implementation = _plain_library_impl,
    attrs = {
        "header": attr.string(mandatory = True),
        "library": attr.string(mandatory = True),
    },
    environ = ["PATH", "CXX"],
    local = True,
)

def _system_tools_impl(ctx):
    for tool in ctx.attr.tools:
        path = ctx.which(tool)
        if not path:
            fail("%s was not found on the PATH. Run ./tools/setup, which installs it." % tool)
        ctx.symlink(path, tool)
    ctx.file("BUILD.bazel", "exports_files([%s])\n" % _quoted(ctx.attr.tools))

system_tools = repository_rule(
    doc = "Programs on the PATH, as files @name//:tool.",
    implementation = _system_tools_impl,
    attrs = {"tools": attr.string_list(mandatory = True)},
    environ = ["PATH"],
    local = True,
)

def _libfuzzer_impl(ctx):
    clang = ["clang++", "--rtlib=compiler-rt"]
    builtins = _run(ctx, clang + ["-print-libgcc-file-name"], "clang++")
    archive = builtins.replace("builtins", "fuzzer")
    if not ctx.path(archive).exists:
        fail("%s was not found. Run ./tools/setup, which installs it." % archive)
    ctx.symlink(archive, "libfuzzer.a")
    headers = _run(ctx, clang + ["-print-resource-dir"], "clang++") + "/include/fuzzer"
    ctx.symlink(headers, "include/fuzzer")
    ctx.file("BUILD.bazel", """
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "libfuzzer",
    srcs = ["libfuzzer.a"],
    hdrs = ["include/fuzzer/FuzzedDataProvider.h"],
    includes = ["include"],
    visibility = ["//visibility:public"],
)
""")

libfuzzer = repository_rule(
    doc = "libFuzzer, which comes with clang: a main function that mutates inputs and calls " +
          "LLVMFuzzerTestOneInput. Code that another compiler has compiled can be linked with it.",
    implementation = _libfuzzer_impl,
    environ = ["PATH"],
    local = True,
)
