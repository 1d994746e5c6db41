"""Ctrl-C, and every other signal with a handler in Python, during a call that waits.

Python runs signal handlers only in the main thread, and only between two bytecodes. A call of the
library that waits for minutes would hold them up. The library therefore calls `CHECK` about every
100 ms from the thread that waits. ctypes takes the GIL for it, Python runs the handlers that are
due, and if one of them raises, the call ends. The caller then raises what the handler
had raised (`raise_pending`).

A Python function cannot be the check: Python runs the handlers as soon as the function begins,
before a `try` in it, and ctypes drops exceptions that leave a callback. A generator is resumed
within the `try` in which it stopped. Each thread has one of its own, and nothing between the
library and the generator is written in Python.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import threading


class _Thread(threading.local):
    """What handlers have raised while this thread waited."""

    def __init__(self):
        self.exception = None
        self.check = self._checks().__next__
        self.check()  # to the first yield

    def _checks(self):
        while True:
            try:
                while True:
                    # Handlers run here, when the generator goes on.
                    yield int(self.exception is not None)
            except GeneratorExit:
                return
            except BaseException as error:  # pylint: disable=broad-except
                self.exception = error
                yield 1


_thread = _Thread()

# int (*)(void): whether the call that waits is to end.
CHECK = ctypes.CFUNCTYPE(ctypes.c_int)(
    functools.partial(operator.methodcaller("check"), _thread)
)


def hold(error: BaseException) -> None:
    """What a handler has raised in another callback of this thread's: its call is to end, and
    raises it."""
    _thread.exception = error


def prepare() -> None:
    """Call this before a call that may wait, in the same thread."""
    _thread.exception = None


def raise_pending() -> None:
    """Call this after it: raises what a signal handler has raised meanwhile."""
    error = _thread.exception
    if error is not None:
        _thread.exception = None
        raise error
