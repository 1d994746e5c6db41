"""Optimizer.join(): workers whose data ends at different times.

A worker whose data has ended takes part in the iterations of the others: its gradients count as
zeros (`absent` on the wire), so that the sum of the others' is divided by the number of all
workers. A shard's answer says of each tensor whether that was so for every worker. In the iteration
in which it was so for all parameters nobody had data any more, and everybody learns it. So a worker
with data must have a gradient in each step(), or say by abandon() that it has none: then it leaves
itself out of the mean, which is another word on the wire.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from evenshard import errors


class UnevenEnds:
    """Whether this worker is in a join(), and what it does there."""

    def __init__(self):
        self._depth = 0

    @property
    def is_inside(self) -> bool:
        """Whether this worker is in the block of a join()."""
        return self._depth > 0

    @contextlib.contextmanager
    def join(self, take_part: Callable[[], bool]) -> Iterator[None]:
        """Calls `take_part()` at the end of the block, as often as it returns False. An exception
        in the block ends it at once."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        while not take_part():
            pass

    def require_outside(self, what: str) -> None:
        """Errors: FailedPrecondition in a join(), where workers without data take part in
        iterations only."""
        if self._depth > 0:
            raise errors.FailedPrecondition(f"{what}: in join(); allowed: before it, and after it")

    def check_step(self, has_gradient: bool) -> None:
        """Errors: FailedPrecondition if a step would look like the end of this worker's data."""
        if self._depth > 0 and not has_gradient:
            raise errors.FailedPrecondition(
                "step(): no parameter has a gradient, which in join() says that this worker's data"
                " has ended; allowed: step() after a backward(), or abandon() for a batch without"
                " one"
            )
