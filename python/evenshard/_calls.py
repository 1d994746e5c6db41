"""The calls of one worker that may wait: one at a time.

Whoever is in such a call may be in the way of one that leaves the run: another thread, which the
call would otherwise keep for ever, or a signal handler, which runs in the middle of the call of its
own thread and cannot wait for its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from evenshard import errors

_AGAIN_SECONDS = 0.1


class Calls:
    def __init__(self):
        self._lock = threading.RLock()
        self._thread: int | None = None  # whose call goes on

    def begin(self) -> None:
        """Waits for another thread's call. Errors: FailedPrecondition in a signal handler, in the
        middle of a call of the same thread."""
        if self.is_of_this_thread:
            raise errors.FailedPrecondition(
                "a signal handler uses the worker in the middle of a call that waits; allowed in"
                " it: close() and interrupt()"
            )
        self._lock.acquire()
        self._thread = threading.get_ident()

    def begin_last(self, interrupt: Callable[[], None]) -> None:
        """As begin(), and ends another thread's call by `interrupt`."""
        while not self._lock.acquire(timeout=_AGAIN_SECONDS):
            interrupt()
        self._thread = threading.get_ident()

    def end(self) -> None:
        self._thread = None
        self._lock.release()

    @property
    def is_going_on(self) -> bool:
        return self._thread is not None

    @property
    def is_of_this_thread(self) -> bool:
        """Whether a call of this thread goes on, in which this is a signal handler."""
        return self._thread == threading.get_ident()
