"""Runs the Python package as users do, with what Bazel has built."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python")
PATIENCE_SECONDS = 240
# The libraries that a wheel need not bring (PEP 600).
OF_EVERY_SYSTEM = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+))\.so\.\d+"
)


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


def follow(on_output, *arguments, **more):
    """Runs Python, and calls `on_output(process, output so far)` at each line, of both outputs. It
    is ended after a limited time. Returns its exit code and all output."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env=environment(**more),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    timer = threading.Timer(PATIENCE_SECONDS, process.terminate)
    timer.start()
    output = ""
    try:
        with process.stdout:
            for line in process.stdout:
                output += line
                on_output(process, output)
        return process.wait(), output
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def kill(ancestor, *words):
    """Kills the processes that come from `ancestor` and have all these words, in their arguments or
    in their environment."""
    parents, texts = {}, {}
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{number}/stat", encoding="utf-8") as file:
                parents[int(number)] = int(file.read().rpartition(")")[2].split()[1])
            for what in ("cmdline", "environ"):
                with open(f"/proc/{number}/{what}", encoding="utf-8", errors="replace") as file:
                    texts.setdefault(int(number), []).extend(file.read().split("\0"))
    for number in parents:
        above = number
        while above not in (0, ancestor.pid):
            above = parents.get(above, 0)
        if above != 0 and number != above and set(words) <= set(texts.get(number, [])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
