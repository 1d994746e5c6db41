"""What becomes of open workers when the program ends.

A worker that is not closed leaves in `atexit`, so that the others learn at once why. After an
exception that nobody caught it leaves with its text. Python does not say in `atexit` by which code
the program ends, so that calls of sys.exit, exit and quit are noted, until a further step shows
that the program goes on. If the worker has not finished, or the run goes back meanwhile, the
program ends with 1.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import os
import sys
import traceback

from evenshard import errors

_MAX_TEXT = 1000

# Kept alive: a script may have dropped its worker, as by returning from main(), and has finished.
_open: set = set()
_uncaught: str | None = None
_is_installed = False


def text_of(error: BaseException | None) -> str | None:
    """Returns the reason with which a worker leaves because of an exception, or None if it is no
    failure."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return None
    return "".join(traceback.format_exception_only(type(error), error)).strip()[:_MAX_TEXT]


def watch(worker) -> None:
    """Calls `worker._end_of_program(reason)` if the program ends before `forget`. It returns the
    reason with which it has left, None if it has finished."""
    global _is_installed  # pylint: disable=global-statement
    if not _is_installed:
        _is_installed = True
        _note_uncaught()
        atexit.register(_end_all)
    _open.add(worker)


def forget(worker) -> None:
    """The worker has left."""
    _open.discard(worker)


def goes_on() -> None:
    """What would have ended the program has not, as in a notebook."""
    global _uncaught  # pylint: disable=global-statement
    _uncaught = None


def _note_uncaught() -> None:
    previous = sys.excepthook

    def note(kind, error, trace):
        global _uncaught  # pylint: disable=global-statement
        _uncaught = text_of(error)
        previous(kind, error, trace)

    sys.excepthook = note
    for module, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit")):
        if hasattr(module, name):
            setattr(module, name, _noting(getattr(module, name)))


def _noting(leave):
    def note(code=None):
        global _uncaught  # pylint: disable=global-statement
        _uncaught = text_of(SystemExit(code))
        leave(code)

    return functools.update_wrapper(note, leave)


def _end_all() -> None:
    fails = False
    for worker in list(_open):
        try:
            reason = worker._end_of_program(_uncaught)
        except BaseException as error:  # pylint: disable=broad-except
            # The next one must still be told.
            traceback.print_exc()
            fails = fails or isinstance(error, errors.WentBack)
        else:
            if reason is not None and reason != _uncaught:
                print(f"evenshard: {reason}", file=sys.stderr)
                fails = True
    if fails:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # Python itself would end with 0
