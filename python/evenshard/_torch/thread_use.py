"""Keeps apart the threads that use one evenshard.Optimizer.

Its methods run one after another, whichever thread calls them. An iteration belongs to the thread
whose backward() has begun it: what another thread does to it in the middle would be a gradient of
both, and is refused. Threads of autograd itself, which compute on a device, belong to nobody.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from evenshard import errors


class ThreadUse:
    """`lock` is of the thread that calls a method, as often as it likes."""

    def __init__(self):
        self.lock = threading.RLock()
        self._owner: threading.Thread | None = None  # of the iteration that has begun, or the last
        self._holder: int | None = None  # the thread whose script has the lock now

    def begin(self) -> None:
        """An iteration begins, in this thread."""
        self._owner = _this_thread()

    def is_owner(self, thread: threading.Thread | None) -> bool:
        """Whether a thread has begun the last iteration."""
        return thread is not None and self._owner is thread

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context with `lock`, in which a script does what it likes."""
        with self.lock:
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = None

    def require_free(self) -> None:
        """Before `lock` is taken in a backward pass. Errors: FailedPrecondition if that would be
        for ever, because the script that holds it waits for this thread."""
        if self._holder in (None, threading.get_ident()) or _this_thread() is not None:
            return
        raise errors.FailedPrecondition(
            "backward(): in `with optimizer.assign():`, allowed: before and after it"
        )

    def check(self) -> None:
        """Errors: FailedPrecondition if the iteration that has begun is another thread's."""
        if self._owner is None or self._owner.ident == threading.get_ident():
            return
        if _this_thread() is not None:
            raise errors.FailedPrecondition(
                f"the thread {threading.current_thread().name} uses an iteration that backward()"
                f" has begun in the thread {self._owner.name}; allowed: one thread from the first"
                " backward() to step() or abandon()"
            )


def _this_thread() -> threading.Thread | None:
    """Returns the thread, or None in one of autograd's, which Python has not started."""
    thread = threading.current_thread()
    return None if isinstance(thread, threading._DummyThread) else thread
