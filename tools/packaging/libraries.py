"""Shared libraries that come with programs, because other machines may lack them.

Each gets a name of its own (libgrpc-1a2b3c4d.so.29), so that it is neither taken for another
version of the same library in one process nor replaced by one. It is found by its place beside the
program. This is what auditwheel does for wheels.
"""

import hashlib
import itertools
import os
import pathlib
import re
import shutil
import subprocess

# What a system must have that takes a manylinux wheel (PEP 513, PEP 600).
_OF_EVERY_SYSTEM = re.compile(
    r"(ld-linux.*|linux-vdso|lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+))\.so\.\d+"
)


class LibrariesError(Exception):
    """The libraries of a program cannot be brought."""


def output_of(command, may_fail=False):
    """Returns the output of a command. Raises LibrariesError if it fails and may not."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise LibrariesError(f"there is no {command[0]}; on Debian: apt-get install {command[0]}")
    if done.returncode != 0 and not may_fail:
        raise LibrariesError(f"{' '.join(map(str, command))} failed: {done.stderr.strip()}")
    return done.stdout


def foreign(binary):
    """Returns the names of the shared libraries that a program or library needs itself, and that
    are not every system's."""
    dynamic = output_of(["readelf", "--dynamic", "--wide", binary])
    names = re.findall(r"\(NEEDED\) +Shared library: \[(.*)\]", dynamic)
    return sorted(name for name in names if not _OF_EVERY_SYSTEM.fullmatch(name))


def _places(binary):
    """Returns the path of each shared library that is loaded with a program, by name."""
    found = {}
    for name, place in re.findall(r"^\s*(\S+) => (.+)", output_of(["ldd", binary]), re.M):
        if place.startswith("not found"):
            raise LibrariesError(f"{binary} needs {name}, which this machine lacks")
        found[name] = pathlib.Path(place.split(" (")[0])
    return found


def all_foreign(binaries):
    """Returns the paths of all libraries that these programs need, directly or not, by name."""
    found = {}
    for binary in binaries:
        places = _places(binary)
        wanted = foreign(binary)
        while wanted:
            name = wanted.pop()
            if name not in found:
                found[name] = places[name]
                wanted += foreign(places[name])
    return dict(sorted(found.items()))


def own_name(name, path):
    """libgrpc.so.29 -> libgrpc-1a2b3c4d.so.29, by the library's content."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    stem, extension = name.split(".so", 1)
    return f"{stem}-{digest}.so{extension}"


def bring(source, target, folder, names):
    """Copies a program or library. It then loads its libraries, under their own `names`, from
    `folder`, which is relative to its place."""
    shutil.copyfile(source, target)
    # One call for each kind of change: patchelf 0.14 mixes up several.
    if source.name in names:
        output_of(["patchelf", "--set-soname", names[source.name], target])
    renamed = [("--replace-needed", name, names[name]) for name in foreign(source)]
    if renamed:
        output_of(["patchelf", *itertools.chain(*renamed), target])
    place = "$ORIGIN" if folder == "." else f"$ORIGIN/{folder}"
    output_of(["patchelf", "--set-rpath", place, target])
