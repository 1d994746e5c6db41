"""Runs the Python package as users do, with what Bazel has built."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python")
PATIENCE_SECONDS = 240


def binaries():
    """The folder of what is built: where EVENSHARD_PROGRAMS says; beside this file's folder in a
    test; otherwise bazel-bin."""
    is_beside = os.path.exists(os.path.join(ROOT, "server", "ps"))
    return os.environ.get(
        "EVENSHARD_PROGRAMS", ROOT if is_beside else os.path.join(ROOT, "bazel-bin")
    )


def environment(**more):
    """The environment in which Python finds the package, the library and the programs."""
    return {
        "EVENSHARD_LIBRARY": os.path.join(binaries(), "client", "libevenshard.so"),
        **os.environ,
        "PYTHONPATH": PACKAGE,
        "EVENSHARD_PROGRAMS": binaries(),
        **more,
    }


def run(*arguments, cwd=ROOT, input="", **more):
    """Runs Python to its end, with both outputs as one."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, env=environment(**more),
        input=input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=PATIENCE_SECONDS, check=False,
    )
