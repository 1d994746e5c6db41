"""What becomes of open workers when the program ends.

A worker that is not closed leaves in `atexit`, so that the others learn at once why. After an
exception that nobody caught it leaves with its text. `sys.exit(1)` is none: Python does not say in
`atexit` with which code the program ends. If the run goes back meanwhile, the program is needed
again: it ends with 1, so that it is started again.
"""

from __future__ import annotations

import atexit
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
    """Calls `worker._end_of_program(reason)` if the program ends before `forget`."""
    global _is_installed  # pylint: disable=global-statement
    if not _is_installed:
        _is_installed = True
        _note_uncaught()
        atexit.register(_end_all)
    _open.add(worker)


def forget(worker) -> None:
    """The worker has left."""
    _open.discard(worker)


def _note_uncaught() -> None:
    previous = sys.excepthook

    def note(kind, error, trace):
        global _uncaught  # pylint: disable=global-statement
        _uncaught = text_of(error)
        previous(kind, error, trace)

    sys.excepthook = note


def _end_all() -> None:
    is_needed = False
    for worker in list(_open):
        try:
            worker._end_of_program(_uncaught)
        except BaseException as error:  # pylint: disable=broad-except
            # The next one must still be told.
            traceback.print_exc()
            is_needed = is_needed or isinstance(error, errors.WentBack)
    if is_needed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # Python itself would end with 0
