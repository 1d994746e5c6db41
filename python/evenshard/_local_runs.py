"""The runs that `launch` has started on this machine, by name (common/process/local_run.h)."""

from __future__ import annotations

import fcntl
import os
import pathlib
import stat
from typing import NamedTuple

from evenshard import errors


class LocalRun(NamedTuple):
    config: str  # the path
    overrides: list[str]


def find(name: str | None) -> LocalRun:
    """Returns the run of that name, or the one that was started last. Errors: ConfigError, which
    names those that there are; the same if others could have named a run."""
    folder = _folder()
    _check(folder)
    runs = sorted(folder.glob("*.run"), key=_started, reverse=True)
    names = []
    for path in runs:
        lines = _lines(path)
        if lines:
            names.append(path.stem)
            if name in (None, path.stem):
                return LocalRun(lines[0], lines[1:])
    raise errors.ConfigError(
        ("config: is not given, and the environment has no EVENSHARD_CONFIG, and no run goes on"
         " that was started on this machine" if name is None
         else f'run: is "{name}", which no run on this machine has')
        + "; allowed: the path of a ClusterConfig" + (f", {', '.join(names)}" if names else "")
    )


def _folder() -> pathlib.Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return pathlib.Path(runtime, "evenshard") if runtime else pathlib.Path(
        f"/tmp/evenshard-{os.getuid()}"
    )


def _check(folder: pathlib.Path) -> None:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise errors.ConfigError(
            f"{folder}: {'others may write to it' if is_own else 'is not a folder of this user'},"
            " allowed: a folder of this user that nobody else may write to, or none yet"
        )


def _started(path: pathlib.Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0


def _lines(path: pathlib.Path) -> list[str]:
    """What stands in the file of a run that goes on: nobody else could lock it."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read()
                return text.removesuffix("\n").split("\n") if text else []
    except FileNotFoundError:
        pass
    return []
