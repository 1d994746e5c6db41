"""What becomes of open workers when the program ends.

A worker that is not closed leaves in `atexit`, so that the others learn at once why. After an
exception that nobody caught it leaves with its text, which Python keeps in sys.last_value even if
the script has replaced sys.excepthook. Python does not say in `atexit` by which code the program
ends, so that calls of sys.exit, exit and quit are noted, until a further step shows that the
program goes on. A SystemExit that the script raises by itself is not seen. If the worker has not
finished, or the run goes back meanwhile, or an exception has ended the thread that trains, the
program ends with 1.

In IPython and notebooks an exception ends a cell and not the program, and no hook of Python is
told. The shell shows it, and then the worker leaves: the others must not wait for a cell that
nobody may ever start again.

A program that `launch` starts again in such a case (EVENSHARD_RESTARTS), or whose run has gone
back, does not leave: it ends as one that a signal has killed, and the run goes on. What another
worker's failure has ended says nothing of its own, and ends with a code of its own.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable

from evenshard import errors

_MAX_TEXT = 1000
# launch takes it for a consequence and not for a cause (tools/launch/supervisor.h): EX_TEMPFAIL.
_FOLLOWER = 75
_RESTARTS = "EVENSHARD_RESTARTS"  # set by launch: "1" if it starts failed programs again
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")  # ends with a slash

# Kept alive: a script may have dropped its worker, as by returning from main(), and has finished.
_open: set = set()
_uncaught: str | None = None
_exception: BaseException | None = None  # that nobody caught
_is_of_thread = False  # that exception, of which Python's own exit code says nothing
_last_value: BaseException | None = None  # what had been shown when the program went on
_hook: Callable[..., None] | None = None  # that this module has put in the place of sys.excepthook
_is_installed = False


def text_of(error: BaseException | None) -> str | None:
    """Returns the reason with which a worker leaves because of an exception, or None if it is no
    failure."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return None
    if isinstance(error, GeneratorExit):  # a generator with the worker in it was closed early
        return None
    return "".join(traceback.format_exception_only(type(error), error)).strip()[:_MAX_TEXT]


def prepare() -> None:
    """Before a worker is made."""
    global _is_installed  # pylint: disable=global-statement
    if not _is_installed:
        _is_installed = True
        _note_uncaught()
        _note_uncaught_of_threads()
        _note_cells()
        atexit.register(_end_all)


def watch(worker) -> None:
    """Calls `worker._end_of_program(reason)` if the program ends before `forget`. It returns the
    reason with which it has left, None if it has finished. `worker._is_trained_by(thread)` says
    whether an exception in a thread is a failure of its training."""
    _open.add(worker)
    goes_on()


def forget(worker) -> None:
    """The worker has left."""
    _open.discard(worker)


def stays(error: BaseException | None) -> bool:
    """Whether a worker does not leave although an exception ends its `with` block, because launch
    starts the program again if it ends so."""
    global _uncaught  # pylint: disable=global-statement
    if os.environ.get(_RESTARTS) != "1" or text_of(error) is None:
        return False
    _uncaught = text_of(error)
    return True


def goes_on() -> None:
    """What would have ended the program has not, as in a notebook."""
    global _uncaught, _exception, _is_of_thread  # pylint: disable=global-statement
    global _last_value  # pylint: disable=global-statement
    _uncaught = _exception = None
    _is_of_thread = False
    _last_value = getattr(sys, "last_value", None)


def _note_uncaught() -> None:
    previous = sys.excepthook

    def note(kind, error, trace):
        global _uncaught, _exception  # pylint: disable=global-statement
        _uncaught, _exception = text_of(error), error
        if not _follows(error):
            trace = _own_frames(error, trace)
            previous(kind, error.with_traceback(trace), trace)
        elif _RESTARTS not in os.environ:  # launch and the shards say the reason
            print(f"evenshard: {error}", file=sys.stderr)

    global _hook  # pylint: disable=global-statement
    _hook = sys.excepthook = note
    leave = sys.exit
    for module, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit")):
        if hasattr(module, name):
            setattr(module, name, _noting(getattr(module, name)))
    # What the script has by `from sys import exit`.
    main = sys.modules["__main__"]
    for name, value in list(vars(main).items()):
        if value is leave:
            setattr(main, name, sys.exit)


def _note_uncaught_of_threads() -> None:
    """The program may end well after an exception in a thread, but not what the thread trained."""
    previous = threading.excepthook

    def note(arguments):
        global _uncaught, _exception, _is_of_thread  # pylint: disable=global-statement
        if not isinstance(arguments.exc_value, SystemExit) and any(
            worker._is_trained_by(arguments.thread) for worker in _open
        ):
            _uncaught, _exception = text_of(arguments.exc_value), arguments.exc_value
            _is_of_thread = True
        previous(arguments)

    threading.excepthook = note


def _note_cells() -> None:
    """Has workers leave when IPython shows an exception, if this program runs in it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    show = shell.showtraceback

    def note(*arguments, **options):
        reason = text_of(sys.exc_info()[1])
        if reason is not None:
            for worker in list(_open):
                try:
                    worker.close(reason)
                except errors.Error as error:
                    print(f"evenshard: {error}", file=sys.stderr)
        return show(*arguments, **options)

    shell.showtraceback = note


def _noting(leave):
    def note(code=None):
        global _uncaught, _is_of_thread  # pylint: disable=global-statement
        reason = text_of(SystemExit(code))
        if reason is not None or not _is_of_thread:
            _uncaught, _is_of_thread = reason, False
        leave(code)

    return functools.update_wrapper(note, leave)


def _follows(error) -> bool:
    """Whether it says that another process has failed."""
    return isinstance(error, errors.Aborted) and not isinstance(error, errors.WentBack)


def _own_frames(error, trace):
    """Leaves out what lies in this package, of an error whose message says all that there is."""
    frames = [(at.tb_frame, at.tb_lasti, at.tb_lineno) for at in _chain(trace)]
    own = [frame.f_code.co_filename.startswith(PACKAGE) for frame, _, _ in frames]
    if not isinstance(error, errors.Error) or True not in own[1:]:
        return trace
    kept = None
    for place in reversed(frames[: own.index(True, 1)]):
        kept = types.TracebackType(kept, *place)
    return kept


def _chain(trace):
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _end_all() -> None:
    global _uncaught, _exception  # pylint: disable=global-statement
    shown = getattr(sys, "last_value", None)
    # By a hook of the script's, in place of note().
    is_own = sys.excepthook is not _hook and shown is not _last_value
    if _open and _uncaught is None and is_own:
        _uncaught, _exception = text_of(shown), shown
    if _open and _uncaught is not None:
        if os.environ.get(_RESTARTS) == "1" or isinstance(_exception, errors.WentBack):
            _end_at_once(1)
    fails, follows = bool(_open) and _is_of_thread, _follows(_exception)
    for worker in list(_open):
        try:
            reason = worker._end_of_program(_uncaught)
        except BaseException as error:  # pylint: disable=broad-except
            # The next one must still be told.
            if isinstance(error, errors.Error):
                if not _follows(error) or _RESTARTS not in os.environ:
                    print(f"evenshard: {type(error).__name__}: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            # A program that has failed has its own code.
            if _uncaught is None and _follows(error):
                follows = True
            else:
                fails = fails or _uncaught is None or isinstance(error, errors.WentBack)
        else:
            if reason is not None and reason != _uncaught:
                print(f"evenshard: {reason}", file=sys.stderr)
                fails = True
    if fails and not _follows(_exception):
        _end_at_once(1)  # Python itself would end with 0
    if follows:
        _end_at_once(_FOLLOWER)


def _end_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
