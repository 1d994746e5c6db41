"""Where Evenshard's programs are: ps, worker, launch and psctl."""

from __future__ import annotations

import os

from evenshard import errors

# By name, where each program is in bazel-bin, in the wheel's folder `bin`, and from one another.
PLACES = {
    "ps": "server/ps",
    "worker": "worker/worker",
    "launch": "tools/launch/launch",
    "psctl": "tools/psctl/psctl",
}
_VARIABLE = "EVENSHARD_PROGRAMS"


def path_of(name: str, folder: str | os.PathLike | None = None) -> str:
    """Returns the path of a program.

    It is looked for in `folder`; if that is None, in EVENSHARD_PROGRAMS; without either, in the
    package as it is installed, and in the checkout that the package lies in. Errors:
    FailedPrecondition if it is not there.
    """
    candidates = [os.path.join(place, PLACES[name]) for place in _folders(folder)]
    target = ":".join(os.path.split(PLACES[name]))
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    raise errors.FailedPrecondition(
        f"there is no program {name}: looked for {' and '.join(candidates)}; build it with `bazel"
        f" build //{target}`, or set {_VARIABLE} to the folder that has {PLACES[name]}"
    )


def _folders(given):
    chosen = given or os.environ.get(_VARIABLE)
    if chosen:
        return [os.path.abspath(chosen)]
    package = os.path.dirname(os.path.abspath(__file__))
    checkout = os.path.dirname(os.path.dirname(package))
    return [os.path.join(package, "bin"), os.path.join(checkout, "bazel-bin")]
