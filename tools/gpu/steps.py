"""The steps of a check, which share one time budget."""

import time

from tools.gpu.processes import ProgramError
from tools.gpu.results import FAILED, NOT_RUN, PASSED, SKIPPED


class Skipped(Exception):
    """A step cannot be done on this machine. The text says why."""


class Budget:
    """The time that a check may take."""

    def __init__(self, seconds, now=time.monotonic):
        self._now = now
        self._end = now() + seconds

    def left(self):
        return max(0.0, self._end - self._now())


class Steps:
    def __init__(self, results, budget):
        self._results = results
        self._budget = budget

    def run(self, name, least, most, work):
        """Calls `work` with the seconds that it may take, which are `most` or all that are left.
        If fewer than `least` are left, `work` is not called. It returns a detail to report, or
        raises ProgramError or Skipped, which decides the step's outcome and does not end the
        check."""
        left = self._budget.left()
        if left < least:
            detail = f"{left:.0f} s are left, it needs {least}"
            self._results.add_step(name, NOT_RUN, detail=detail)
            return
        start = time.monotonic()
        try:
            outcome, detail = PASSED, work(min(most, left)) or ""
        except Skipped as reason:
            outcome, detail = SKIPPED, str(reason)
        except ProgramError as error:
            outcome, detail = FAILED, str(error)
        self._results.add_step(name, outcome, time.monotonic() - start, detail)
