"""The programs that a check runs. One archive carries them to another machine.

A folder of programs has the layout of bazel-bin, with the files that the programs read:

    server/ps  worker/worker  tools/...  bench/...  tests/...   as Bazel names them
    lib/            shared libraries that a bare machine lacks
    gpu_tests.txt   the tests, one a line
    configs/  data/  bench/*.py  tools/gpu_check  tools/gpu/
"""

import os
import re
import shutil
import stat
import subprocess
import tarfile

_ARCHIVE = "gpu_check.tar.xz"
_ARCHIVE_LIMIT_BYTES = 64 << 20
_TESTS = "gpu_tests.txt"
_TARGETS = (
    "//server:ps", "//worker:worker", "//tools/psctl:psctl", "//tools/launch:launch",
    "//bench/compute:compute",
)
_OPTIONS = ("--config=static", "--config=cuda", "--dynamic_mode=off", "-c", "opt")
_FILES = (
    "bench/python/pytorch_ddp_gloo.py", "bench/python/pytorch_vgg16.py", "tools/bazel_environment",
    "tools/gpu_check",
)
_FOLDERS = ("configs", "data/digits", "tools/gpu")
# Every machine with a GPU has its own versions of these: the C and C++ libraries, the driver, CUDA.
_OF_THE_MACHINE = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda|cu[bdr].*|nv.*))\.so.*"
)


class ProgramsError(Exception):
    """The programs cannot be built, packed or unpacked."""


def _output_of(command, cwd):
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise ProgramsError(f"{' '.join(command)} failed with exit code {done.returncode}")
    return done.stdout


def _path(label):
    """//server:ps -> server/ps"""
    return label.lstrip("/").replace(":", "/")


def _shared_libraries(program, cwd):
    """Returns the paths of the shared libraries that a bare machine lacks."""
    libraries = []
    for line in _output_of(["ldd", program], cwd).splitlines():
        name, _, place = line.strip().partition(" => ")
        if place and not _OF_THE_MACHINE.fullmatch(name):
            if place.startswith("not found"):
                raise ProgramsError(f"{program} needs {name}, which this machine lacks")
            libraries.append(place.split(" ")[0])
    return libraries


def build(root, folder):
    """Builds the programs of the checkout `root` and copies them, stripped, to `folder`."""
    query = ["bazel", "query", r'attr(tags, "\bgpu\b", tests(//...))', "--noshow_progress"]
    tests = sorted(_output_of(query, root).split())
    if not tests:
        raise ProgramsError("no test is tagged gpu")
    _output_of(["bazel", "build", *_OPTIONS, *_TARGETS, *tests], root)
    binaries = _output_of(["bazel", "info", *_OPTIONS, "bazel-bin"], root).strip()
    os.makedirs(os.path.join(folder, "lib"))
    for label in (*_TARGETS, *tests):
        source = os.path.join(binaries, _path(label))
        target = os.path.join(folder, _path(label))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _output_of(["strip", "-o", target, source], root)
        os.chmod(target, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        for library in _shared_libraries(target, root):
            copied = os.path.join(folder, "lib", os.path.basename(library))
            if not os.path.exists(copied):
                shutil.copy(library, copied)
    copy_files(root, folder)
    with open(os.path.join(folder, _TESTS), "w", encoding="utf-8") as file:
        file.write("".join(f"{_path(label)}\n" for label in tests))


def copy_files(root, folder):
    """Copies what the programs read."""
    for name in _FILES:
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(root, name), target)
    for name in _FOLDERS:
        shutil.copytree(
            os.path.join(root, name), os.path.join(folder, name), dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "BUILD.bazel"),
        )


def pack(folder, where):
    """Writes a folder of programs as one archive into the folder `where`. Returns its path and
    size. Raises ProgramsError if it is too large."""
    os.makedirs(where, exist_ok=True)
    path = os.path.join(where, _ARCHIVE)
    part = path + ".part"
    with tarfile.open(part, "w:xz", preset=6) as archive:  # type: ignore[call-arg]
        archive.add(folder, arcname=".")
    size = os.path.getsize(part)
    if size > _ARCHIVE_LIMIT_BYTES:
        os.remove(part)
        raise ProgramsError(
            f"{path} would have {size / 2**20:.1f} MiB, allowed: {_ARCHIVE_LIMIT_BYTES >> 20} MiB"
        )
    os.rename(part, path)
    return path, size


def unpack(where, folder):
    """Unpacks the archive in the folder `where` into `folder`. Raises ProgramsError."""
    path = os.path.join(where, _ARCHIVE)
    try:
        with tarfile.open(path) as archive:
            archive.extractall(folder)
    except (OSError, tarfile.TarError) as error:
        raise ProgramsError(f"{path}: {error}; gpu_check --pack makes one") from None


def is_folder_of_programs(folder):
    return os.path.exists(os.path.join(folder, _TESTS))


def tests_of(folder):
    with open(os.path.join(folder, _TESTS), encoding="utf-8") as file:
        return file.read().split()
