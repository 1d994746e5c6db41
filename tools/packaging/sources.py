"""What of the system has been compiled into a program."""

import pathlib
import re

import libraries


def headers(binary):
    """Returns the paths of the system's headers that the sources of what Bazel has linked include.

    Bazel leaves the linker's arguments beside a program, PROGRAM-2.params, with its object files,
    and the compiler the headers of an object file beside that, NAME.d.
    """
    binary = binary.resolve()
    root = pathlib.Path(str(binary).partition("/bazel-out/")[0])
    arguments = _read(binary.with_name(binary.name + "-2.params"))
    found = set()
    for name in re.findall(r"^bazel-out/.*\.o$", arguments, re.M):
        rule = _read((root / name).with_suffix(".d"))
        found.update(re.findall(r"(?<=\s)/\S+", rule))
    return found


def _read(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise libraries.LibrariesError(f"what Bazel has built it from: {error}") from None
