"""The command `evenshard`: Evenshard's programs under one name."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import evenshard
from evenshard import _programs, errors, run

_USAGE = """\
usage: evenshard COMMAND ARGUMENT ...

  run       starts the shards and one copy of a script per worker on this machine
  launch    runs a whole cluster by a config on this machine
  ps        a shard
  worker    a worker that trains a model of the config
  psctl     plans, statistics, saved models and the end of a run

`evenshard COMMAND --help` says more. `evenshard --version` prints the version.
"""
_USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit code. A program takes the place of this process."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments:
        sys.stderr.write(_USAGE)
        return _USAGE_ERROR
    command, *rest = arguments
    if command in ("-h", "--help"):
        sys.stdout.write(_USAGE)
        return 0
    if command == "--version":
        print(f"evenshard {evenshard.__version__}")
        return 0
    if command == "run":
        return run.main(rest, program="evenshard run")
    if command not in _programs.PLACES:
        allowed = ", ".join(["run", *_programs.PLACES])
        sys.stderr.write(f'evenshard: unknown command "{command}", allowed: {allowed}\n')
        return _USAGE_ERROR
    try:
        path = _programs.path_of(command)
    except errors.Error as error:
        sys.stderr.write(f"evenshard: {error}\n")
        return 1
    os.execv(path, [path, *rest])


if __name__ == "__main__":
    sys.exit(main())
