"""Lets clang check that guarded members are used under their locks: bazel build --config=locks.

clang reads only targets in which there may be something to find: those whose files, or the headers
that they include, have annotations.
"""

_COMMAND = """
annotated() {
  grep -sqE 'ABSL_[A-Z_]*(GUARDED|LOCKS?_)' "$@" $(sed -n 's/^#include "\\(.*\\)"$/\\1/p' "$@")
}
"""

def _check_locks_impl(target, ctx):
    if ctx.rule.kind not in ["cc_binary", "cc_library"]:
        return []
    sources = [file for file in ctx.rule.files.srcs if file.extension == "cc" and file.is_source]
    if not sources:
        return []
    files = ctx.rule.files.srcs + getattr(ctx.rule.files, "hdrs", [])
    deps = [dep[CcInfo] for dep in ctx.rule.attr.deps if CcInfo in dep]
    context = cc_common.merge_cc_infos(cc_infos = deps).compilation_context
    arguments = ctx.actions.args()
    arguments.add_all(["-fsyntax-only", "-std=c++20", "-Wthread-safety", "-Werror=thread-safety"])
    arguments.add_all(ctx.rule.attr.local_defines, format_each = "-D%s")
    arguments.add_all(context.defines, format_each = "-D%s")
    arguments.add("-I.")
    arguments.add_all(context.quote_includes, before_each = "-iquote")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add_all(sources)
    checked = ctx.actions.declare_file(ctx.label.name + ".locks")
    ctx.actions.run_shell(
        command = _COMMAND + "if annotated %s; then \"$@\"; fi && touch %s" % (
            " ".join([file.path for file in files]),
            checked.path,
        ),
        arguments = [ctx.file._clang.path, arguments],
        inputs = depset(files, transitive = [context.headers]),
        tools = [ctx.file._clang],
        outputs = [checked],
        mnemonic = "CheckLocks",
        progress_message = "Checking the locks of %s" % ctx.label,
    )
    return [OutputGroupInfo(locks = depset([checked]))]

check_locks = aspect(
    implementation = _check_locks_impl,
    attrs = {
        "_clang": attr.label(default = "@clang//:clang++", allow_single_file = True),
    },
)
