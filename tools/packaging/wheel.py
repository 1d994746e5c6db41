#!/usr/bin/env python3
"""Makes Evenshard's wheel from what Bazel has built.

    wheel.py --binaries=BAZEL_BIN --out=FOLDER

tools/package calls this. The wheel has

    evenshard/**/*.py, evenshard/libevenshard.so
    evenshard/bin/                  the programs, in the folders that they have in bazel-bin
    evenshard/lib/                  the shared libraries that not every system has (libraries.py)
    evenshard-VERSION.dist-info/    what pip needs, licences, and the bill of materials (bill.py)

The library is loaded by ctypes and the programs are started, so that one wheel does for every
version of Python. The same files give the same bytes. The bill has the time of SOURCE_DATE_EPOCH
(https://reproducible-builds.org/specs/source-date-epoch), and none without it. It is written beside
the wheel too.
"""

import argparse
import base64
import collections
import datetime
import hashlib
import os
import pathlib
import platform
import re
import sys
import tempfile
import zipfile

import bill
import libraries
import packages
import sources

_ROOT = pathlib.Path(os.path.abspath(__file__)).parent.parent.parent
_PACKAGE = _ROOT / "python" / "evenshard"
# What Bazel has built, and where it is in the package.
_BINARIES = {
    "client/libevenshard.so": "libevenshard.so",
    "server/ps": "bin/server/ps",
    "tools/launch/launch": "bin/tools/launch/launch",
    "tools/psctl/psctl": "bin/tools/psctl/psctl",
    "worker/worker": "bin/worker/worker",
}

_METADATA = """\
Metadata-Version: 2.1
Name: evenshard
Version: {version}
Summary: A sharded parameter server for data-parallel training: for PyTorch and numpy
License: Apache-2.0
{license_files}
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.9
Description-Content-Type: text/markdown

evenshard.Optimizer takes the place of an optimizer of torch.optim. The command `evenshard run`
starts the shards and one copy of a script per worker on this machine. The package works without
PyTorch too: by evenshard.Worker, with arrays of any library.
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: tools/package of Evenshard
Root-Is-Purelib: false
Tag: {tag}
"""
_ENTRY_POINTS = """\
[console_scripts]
evenshard = evenshard.command:main
"""


class WheelError(Exception):
    """The wheel cannot be made."""


def _python_files():
    return {
        f"evenshard/{source.relative_to(_PACKAGE)}": source.read_bytes()
        for source in sorted(_PACKAGE.rglob("*"))
        if source.suffix == ".py" or source.name == "py.typed"
    }


def _binary_files(binaries, brought):
    """Returns the library, the programs, and the libraries that they need."""
    names = {name: libraries.own_name(name, path) for name, path in brought.items()}
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        stripped, target = scratch / "stripped", scratch / "target"
        for source, place in _BINARIES.items():
            libraries.output_of(["strip", "--strip-unneeded", "-o", stripped, binaries / source])
            where = os.path.relpath("lib", os.path.dirname(place) or ".")
            libraries.bring(stripped, target, where, names)
            files[f"evenshard/{place}"] = target.read_bytes()
        for name, path in brought.items():
            # Under the name by which it is needed, and not that of the file that a link leads to.
            library = scratch / name
            library.symlink_to(path)
            libraries.bring(library, target, ".", names)
            files[f"evenshard/lib/{names[name]}"] = target.read_bytes()
    return files


def _contents(binaries, brought, files):
    """Returns what the bill names, of the wheel's `files`."""
    headers = set().union(*(sources.headers(binaries / source) for source in _BINARIES))
    owners = packages.owners({*headers, *brought.values()})
    owner = {name: owners[path] for name, path in brought.items()}
    copied, needs = collections.defaultdict(dict), collections.defaultdict(set)
    for name, path in brought.items():
        place = f"evenshard/lib/{libraries.own_name(name, path)}"
        copied[owner[name]][place] = files[place]
        needs[owner[name]].update(owner[need] for need in libraries.foreign(path))
    for source in _BINARIES:
        needs[None].update(owner[need] for need in libraries.foreign(binaries / source))
    return bill.Contents(
        version=_version(),
        built={f"evenshard/{place}": files[f"evenshard/{place}"] for place in _BINARIES.values()},
        copied=copied,
        compiled={owners[header] for header in headers},
        needs=needs,
    )


def _licenses(contents):
    """Returns the texts of all licences, by the path in the folder .dist-info."""
    return {
        "licenses/LICENSE": (_ROOT / "LICENSE").read_bytes(),
        **{
            f"licenses/{package.name}.txt": package.copyright()
            for package in sorted({*contents.copied, *contents.compiled})
        },
    }


def _version():
    text = (_PACKAGE / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


def _tag():
    # For systems whose C library is at least as new as this one's.
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    return f"py3-none-manylinux_{glibc}_{platform.machine()}"


def _record(files, own_name):
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()


def _write(path, files, bill_path, bill_text):
    """Writes a zip file with the same time for all files, and the bill beside it. Those that are
    there are replaced when both are written."""
    part, bill_part = path.with_suffix(".part"), bill_path.with_suffix(".part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                mode = 0o100755 if name.startswith("evenshard/bin/") else 0o100644
                entry.external_attr = mode << 16
                archive.writestr(entry, content)
        bill_part.write_bytes(bill_text)
        os.replace(bill_part, bill_path)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
        bill_part.unlink(missing_ok=True)


def make(binaries, out, time):
    """Writes the wheel and its bill into the folder `out`, and returns the wheel's path. `time` is
    the bill's, or None. Raises WheelError and libraries.LibrariesError."""
    missing = [path for path in _BINARIES if not (binaries / path).exists()]
    if missing:
        raise WheelError(f"{binaries} lacks {', '.join(missing)}; tools/package builds them")
    version, tag = _version(), _tag()
    info = f"evenshard-{version}.dist-info"
    brought = libraries.all_foreign([binaries / path for path in _BINARIES])
    files = {**_python_files(), **_binary_files(binaries, brought)}
    contents = _contents(binaries, brought, files)
    licenses = _licenses(contents)
    license_files = "\n".join(f"License-File: {os.path.basename(path)}" for path in licenses)
    for path, text in licenses.items():
        files[f"{info}/{path}"] = text
    metadata = _METADATA.format(version=version, license_files=license_files)
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = _WHEEL.format(tag=tag).encode()
    files[f"{info}/entry_points.txt"] = _ENTRY_POINTS.encode()
    files[f"{info}/sboms/evenshard.cdx.json"] = bill.text(contents, time)
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"evenshard-{version}-{tag}.whl"
    _write(path, files, path.with_suffix(".cdx.json"), files[f"{info}/sboms/evenshard.cdx.json"])
    return path


def _time():
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return None
    if not re.fullmatch(r"\d{1,11}", epoch):
        raise WheelError(f'SOURCE_DATE_EPOCH is "{epoch}", allowed: seconds since 1970')
    return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).isoformat()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", type=pathlib.Path, required=True, help="bazel-bin")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the wheel's folder")
    options = parser.parse_args()
    try:
        path = make(options.binaries, options.out, _time())
    except (WheelError, libraries.LibrariesError, OSError) as error:
        sys.exit(f"package: {error}")
    print(f"package: {path}, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
